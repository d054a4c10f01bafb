"""Polygons, balls and bodies from files: boundaries, normals and insides."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch
from stated import F64

from dudx.errors import InputError
from dudx.lab import Ball, Mesh, Polygon


def test_polygons_and_balls_have_boundaries_with_normals() -> None:
    shapes = {
        "polygon": (Polygon((0, 0), (2, 0), (2, 1), (1, 1), (1, 2), (0, 2)), 8.0, 3.0 / 4.0),
        "ball": (Ball((0, 0, 0), 0.5), math.pi, math.pi / 6),
        "hollow": (Ball((0, 0, 0), 1.0) - Ball((0, 0, 0), 0.5), 5 * math.pi, 7 / 8 * math.pi / 6),
        "triangle": (Polygon((0, 0), (0, 1), (1, 0)), 2 + math.sqrt(2), 0.5),
    }
    for shape, measure, share in shapes.values():
        assert sum(piece.length for piece in shape.pieces) == pytest.approx(measure, rel=1e-9)
        assert shape._share == pytest.approx(share, rel=2e-2)
        x, n, _ = shape.sample_boundary(500, torch.Generator().manual_seed(1), dtype=F64)
        assert float(shape.signed_distance(x).abs().max()) < 1e-12
        assert torch.allclose(n.norm(dim=1), torch.ones(500, dtype=F64))
        # A small step along the normal goes as far out as it is long, but at corners.
        out = shape.signed_distance(x + 1e-4 * n)
        assert float(((out - 1e-4).abs() < 1e-9).double().mean()) > 0.99
        assert not shape.contains(x + 1e-4 * n).any()
    with pytest.raises(InputError, match="do not cross"):
        Polygon((0, 0), (1, 1), (1, 0), (0, 1))


TORUS = Path(__file__).parents[2] / "examples" / "gallery" / "torus.stl"


def test_a_body_from_a_file_has_an_inside_and_normals(tmp_path: Path) -> None:
    body = Mesh(TORUS)
    x = body.sobol(300, dtype=F64)
    assert float((body.signed_distance(x) <= 0).double().mean()) == 1.0
    ring = (x[:, :2].norm(dim=1) - 1).hypot(x[:, 2])
    assert float(ring.max()) < 0.4  # flat triangles are inside of the torus that their corners are on
    box = math.prod(b - a for a, b in zip(*body.bounds, strict=True))
    assert body._share * box == pytest.approx(2 * math.pi**2 * 0.16, rel=0.06)
    (piece,) = body.pieces
    assert (piece.share, piece.side) == (1.0, 1.0)
    assert piece.length == pytest.approx(4 * math.pi**2 * 0.4, rel=0.03)
    x, n, _ = body.sample_boundary(300, torch.Generator().manual_seed(0), dtype=F64)
    assert float(body.signed_distance(x).abs().max()) < 1e-12
    assert torch.allclose(body.signed_distance(x - 1e-3 * n), torch.full((300,), -1e-3, dtype=F64), atol=5e-4)
    # The grid never contradicts the triangles.
    far = 3 * torch.rand(500, 3, dtype=F64) - 1.5
    quick, exact = body.signed_distance(far), body._exact(far)
    assert torch.equal(quick < 0, exact < 0)
    assert bool((quick.abs() <= exact.abs() + 1e-12).all())
    corners = body.corners.reshape(-1, 3)
    lines = [f"v {a} {b} {c}" for a, b, c in corners.tolist()]
    lines += [f"f {3 * i + 1}/1 {3 * i + 2}/1 {3 * i + 3}/1" for i in range(len(body.corners))]
    (tmp_path / "a.obj").write_text("\n".join(lines))
    assert torch.equal(Mesh(tmp_path / "a.obj").corners, body.corners)
    facets = ["facet normal 0 0 1\nouter loop\n" + "".join(f"vertex {a} {b} {c}\n" for a, b, c in t) for t in
              body.corners.tolist()]  # fmt: skip
    (tmp_path / "a.stl").write_text(
        "solid a\n" + "".join(f"{facet}endloop\nendfacet\n" for facet in facets) + "endsolid a\n"
    )
    assert torch.equal(Mesh(tmp_path / "a.stl").corners, body.corners)
    (tmp_path / "open.obj").write_text("\n".join(lines[:-1]))
    with pytest.raises(InputError, match="not closed"):
        Mesh(tmp_path / "open.obj")
    (tmp_path / "bad.stl").write_bytes(TORUS.read_bytes()[:-7])
    with pytest.raises(InputError, match="cannot be read"):
        Mesh(tmp_path / "bad.stl")


def test_bodies_of_polygons_and_of_any_size_are_read(tmp_path: Path) -> None:
    corners = [(x, y, z) for z in (0, 1) for x, y in ((0, 0), (1, 0), (1, 1), (0, 1))]
    faces = ["4 3 2 1", "5 6 7 8", "1 2 6 5", "2 3 7 6", "3 4 8 7", "4 1 5 8"]
    for size in (1e-9, 1.0, 1e6):
        lines = [f"v {size * x} {size * y} {size * z}" for x, y, z in corners] + [f"f {face}" for face in faces]
        (tmp_path / "cube.obj").write_text("\n".join(lines))
        body = Mesh(tmp_path / "cube.obj")
        assert len(body.corners) == 12
        assert body.pieces[0].length == pytest.approx(6 * size**2, rel=1e-12)
        middle = torch.full((1, 3), size / 2, dtype=F64)
        assert float(body._exact(middle)) == pytest.approx(-size / 2, rel=1e-9)


def test_without_trimesh_the_package_to_install_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trimesh", None)
    with pytest.raises(InputError, match=r"pip install 'dudx\[mesh\]'"):
        Mesh(TORUS)
