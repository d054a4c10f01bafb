"""Domains from gmsh's files with named groups, and results on their meshes."""

from __future__ import annotations

import math
from pathlib import Path

import meshio
import numpy as np
import pytest
import torch
from stated import F64

from dudx.errors import InputError
from dudx.lab import Box, Dirichlet, Disc, Initial, Interval, Mesh, Neumann, Problem, solve

MESHES = Path(__file__).parents[1] / "support" / "meshes"
#: The perimeter of the octagon that stands for the hole of radius 1/4.
OCTAGON = 8 * 2 * 0.25 * math.sin(math.pi / 8)
PLATE = {"inlet": 1.0, "outlet": 1.0, "walls": 4.0, "hole": OCTAGON}


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """The plate in version 2.2 of gmsh's format."""
    mesh = meshio.read(MESHES / "plate.msh")
    mesh.point_data, mesh.cell_sets = {}, {}
    mesh.write(tmp_path / "older.msh", file_format="gmsh22")
    return tmp_path / "older.msh"


@pytest.mark.parametrize("name", ["plate.msh", "plate_order_2.msh", "older"])
def test_groups_of_a_plane_mesh_are_pieces_of_the_boundary(name: str, older: Path) -> None:
    shape = Mesh(older if name == "older" else MESHES / name)
    assert shape.dimension == 2
    assert set(shape.groups) == set(PLATE)
    assert {piece.surface.group: piece.length for piece in shape.pieces} == pytest.approx(PLATE)  # type: ignore[attr-defined]
    area = 2 - 0.5 * 8 * 0.25**2 * math.sin(math.pi / 4)
    assert 2 * shape._share == pytest.approx(area, rel=1e-2)
    x, n, piece = shape.sample_boundary(500, torch.Generator().manual_seed(0), dtype=F64)
    assert float(shape.signed_distance(x).abs().max()) < 1e-12
    assert not shape.contains(x + 1e-6 * n).any()
    assert float(shape.contains(x - 1e-6 * n).double().mean()) > 0.99
    number = [p.surface.group for p in shape.pieces].index("inlet")  # type: ignore[attr-defined]
    assert float(x[piece == number][:, 0].abs().max()) == 0.0
    assert torch.equal(
        n[piece == number], torch.tensor([[-1.0, 0.0]], dtype=F64).expand(int((piece == number).sum()), 2)
    )


def test_signed_distances_of_a_plane_mesh_are_those_of_its_polygon() -> None:
    x = 3 * torch.rand(400, 2, dtype=F64, generator=torch.Generator().manual_seed(0)) - 0.5
    rough = (Box((0, 0), (2, 1)) - Disc((1, 0.5), 0.25)).signed_distance(x)
    assert float((Mesh(MESHES / "plate.msh").signed_distance(x) - rough).abs().max()) < 0.25 * (
        1 - math.cos(math.pi / 8)
    )


def test_groups_of_a_mesh_in_space() -> None:
    shape = Mesh(MESHES / "brick.msh")
    assert shape.dimension == 3
    assert shape.groups == ("bottom", "top")
    assert [piece.length for piece in shape.pieces] == pytest.approx([1.0, 1.0, 8.0])
    x, n, _ = shape.sample_boundary(300, torch.Generator().manual_seed(0), dtype=F64)
    assert not shape.contains(x + 1e-6 * n).any()
    brick = Box((0, 0, 0), (1, 1, 2))
    inside = shape.sample(200, torch.Generator().manual_seed(0), dtype=F64)
    assert float(brick.signed_distance(inside).max()) <= 0
    problem = Problem(lambda u: u.xx + u.yy + u.zz, ("x", "y", "z"), shape, [Dirichlet(u=0.0, on="top")])
    points, _ = problem.conditions[0].sample(50, torch.Generator().manual_seed(0), torch.device("cpu"), F64)
    assert torch.allclose(points[:, 2], torch.full((50,), 2.0, dtype=F64))


def test_a_mesh_is_solved_end_to_end(tmp_path: Path) -> None:
    """u = x on a plate without a flux through its walls; the hole has the values of x."""
    problem = Problem(
        lambda u: u.xx + u.yy,
        ("x", "y"),
        Mesh(MESHES / "plate.msh"),
        [
            Dirichlet(u=0.0, on="inlet"),
            Dirichlet(u=2.0, on="outlet"),
            Neumann(u=0.0, on="walls"),
            Dirichlet(u=lambda x: x, on="hole"),
        ],
    )
    assert problem.warnings == ()
    solution = solve(problem, epochs=30, width=8, depth=2, batch=150, minutes=10, quiet=True)
    assert solution.error(lambda x: x) < 1e-3
    path = solution.to_mesh(MESHES / "plate.msh", tmp_path / "out.vtu")
    written, read = meshio.read(path), meshio.read(MESHES / "plate.msh")
    assert np.array_equal(written.points, read.points)
    assert np.array_equal(written.point_data["u"], solution(read.points[:, :2])[:, 0])
    assert written.cells_dict["triangle"].shape == (116, 3)
    flux = solution.to_mesh(MESHES / "plate.msh", tmp_path / "flux.vtk", of={"flux": lambda u: u.x})
    assert meshio.read(flux).point_data["flux"] == pytest.approx(1.0, abs=0.02)
    with pytest.raises(InputError, match="does not know files of the kind"):
        solution.to_mesh(MESHES / "plate.msh", tmp_path / "out.txt")
    with pytest.raises(InputError, match="has 3 coordinates"):
        solution.to_mesh(MESHES / "brick.msh", tmp_path / "out.vtu")


def test_results_on_a_mesh_are_at_a_time(tmp_path: Path) -> None:
    domain = Mesh(MESHES / "plate.msh") * Interval(0, 1)
    problem = Problem(lambda u: u.t - u.xx - u.yy, ("x", "y", "t"), domain, [Initial(u=1.0), Neumann(u=0.0)])
    solution = solve(problem, epochs=1, width=4, depth=1, batch=50, minutes=10, quiet=True, windows=False)
    written = meshio.read(solution.to_mesh(MESHES / "plate.msh", tmp_path / "out.vtu", t=0.5))
    points = np.column_stack([written.points[:, :2], np.full(len(written.points), 0.5)])
    assert np.array_equal(written.point_data["u"], solution(points)[:, 0])
    with pytest.raises(InputError, match=r"such as t=1\.0"):
        solution.to_mesh(MESHES / "plate.msh", tmp_path / "out.vtu")


def test_files_that_hold_no_domain_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no file"):
        Mesh(tmp_path / "a.msh")
    (tmp_path / "a.msh").write_text("nothing")
    with pytest.raises(InputError, match=r"a\.msh' cannot be read by meshio"):
        Mesh(tmp_path / "a.msh")
    (tmp_path / "a.xyz").write_text("nothing")
    with pytest.raises(InputError, match=r"a\.xyz' cannot be read by meshio"):
        Mesh(tmp_path / "a.xyz")
    content = (MESHES / "plate.msh").read_text()
    for share in (0.3, 0.6, 0.9):
        (tmp_path / "cut.msh").write_text(content[: int(share * len(content))])
        with pytest.raises(InputError, match=r"cannot be read|holds no triangles"):
            Mesh(tmp_path / "cut.msh")
    meshio.Mesh([[0, 0, 0], [1, 0, 0], [1, 1, 1]], [("triangle", [[0, 1, 2]])]).write(tmp_path / "surface.vtk")
    with pytest.raises(InputError, match="holds no triangles or quadrilaterals in the plane, nor tetrahedra"):
        Mesh(tmp_path / "surface.vtk")
    with pytest.raises(InputError, match=r"groups of the mesh are hole, walls, inlet, outlet"):
        Problem(lambda u: u.xx + u.yy, ("x", "y"), Mesh(MESHES / "plate.msh"), [Dirichlet(u=0.0, on="inlt")])
