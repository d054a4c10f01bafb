"""Solving by one call, and looking at what came of it."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import meshio
import numpy as np
import pytest
import torch

import dudx
from dudx.errors import InputError
from dudx.lab import Box, Data, Dirichlet, Disc, Initial, Interval, Problem, Solution, make_settings, solve
from dudx.lab.run.default_settings import chosen
from dudx.lab.run.networks.mlp import MLP
from dudx.lab.run.noise import Noise
from dudx.lab.run.objective import Objective
from dudx.lab.solving import stage, staged, time_windows
from dudx.lab.solving.grids import Grid
from dudx.lab.solving.solution_pictures import without_outliers

F64 = torch.float64
TINY = {"width": 6, "depth": 2, "batch": 60, "boundary_batch": 30, "initial_batch": 30, "quiet": True}


def plate() -> Problem:
    domain = Box((0, 0), (1, 1)) - Disc((0.5, 0.5), 0.2)
    return Problem(lambda u: u.xx + u.yy, ("x", "y"), domain, [Dirichlet(u=lambda x, y: x * y)], title="A plate")


def decay(**more: Any) -> Problem:
    return Problem(lambda u: u.t + u, ("t",), Interval(0, 2), [Initial(u=3.0)], **more)


@pytest.fixture(scope="module")
def solved() -> Solution:
    return solve(plate(), minutes=0.05, epochs=12, **TINY)


def test_a_solution_is_a_function_with_an_error_and_an_estimate_of_it(solved: Solution) -> None:
    x = plate().domain.sobol(50, dtype=F64)
    assert solved(x).shape == (50, 1)
    assert np.allclose(solved(x.numpy()), solved.network(x).detach().numpy())
    error = solved.error(lambda x, y: x * y)
    assert error < 0.05
    assert solved.estimate is not None
    assert error / 10 < solved.estimate < 10 * error
    points = x.numpy()
    assert solved.error((points, points[:, :1] * points[:, 1:])) == pytest.approx(error, rel=1)
    assert solved.error(lambda points: points[:, 0] * points[:, 1]) == error
    exact = plate().residual(solved.network, x, dudx.AD())
    assert np.allclose(solved.residual(x), exact.detach().numpy(), atol=1e-9)
    with pytest.raises(InputError, match=r"shape \(N, 2\), columns x, y"):
        solved([[1.0, 2.0, 3.0]])
    with pytest.raises(InputError, match="2 values per point; there are 1"):
        solved.error(lambda x: (x, x))


def test_a_solution_is_looked_at_and_kept(solved: Solution, tmp_path: Path) -> None:
    solved.plot(tmp_path / "a.png", reference=lambda x, y: x * y)
    assert (tmp_path / "a.png").stat().st_size > 10_000
    page = solved.save_html(tmp_path / "a.html").read_text()
    assert "A plate" in page
    assert page.count("data:image/png;base64,") == 2
    assert '<img alt="training"' in page
    assert "<td>CPU seconds</td>" in page
    kept = solved.save(tmp_path / "kept")
    assert json.loads((kept / "result.json").read_text())["status"] == "finished"
    assert np.array_equal(Solution.load(kept, plate())([[0.1, 0.2]]), solved([[0.1, 0.2]]))
    with np.load(kept / "solution.npz") as arrays:
        assert arrays["u"].shape == (201, 201)
    grid = solved.grid(11)
    assert np.isnan(grid.values["u"][5, 5])  # in the hole
    assert grid.values["u"][1, 2] == pytest.approx(float(solved([[0.1, 0.2]])[0, 0]))
    if "xarray" not in sys.modules:
        pytest.importorskip("xarray", reason="an optional extra")
    assert float(grid.to_xarray()["u"].sel(x=0.1, y=0.2, method="nearest")) == pytest.approx(grid.values["u"][1, 2])


@pytest.mark.parametrize("suffix", ["vtk", "vtu"])
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_a_grid_is_written_for_paraview(dimension: int, suffix: str, tmp_path: Path) -> None:
    names = ("x", "y", "z")[:dimension]
    axes = {name: np.linspace(0, 1 + i, 4 + i) for i, name in enumerate(names)}
    columns = np.meshgrid(*axes.values(), indexing="ij")
    values = sum(10**i * column for i, column in enumerate(columns))
    values[(0,) * dimension] = np.nan
    path = Grid(axes, {}, {"u": values}).to_vtk(tmp_path / f"a.{suffix}")
    mesh = meshio.read(path)
    points, (block,) = mesh.points[:, :dimension], mesh.cells
    inside = np.unique(block.data)
    assert np.allclose(mesh.point_data["u"][inside], points[inside] @ 10.0 ** np.arange(dimension))
    assert len(block.data) == math.prod(len(axis) - 1 for axis in axes.values()) - 1  # but for the one with a NaN
    corners = points[block.data]
    assert np.allclose(np.ptp(corners, axis=1), [axis[1] - axis[0] for axis in axes.values()])
    # In VTK's order neighbours differ in one coordinate.
    moved = np.abs(np.diff(corners, axis=1)) > 1e-9
    assert (moved.sum(axis=2)[:, [i for i in range(corners.shape[1] - 1) if i != 3]] == 1).all()
    with pytest.raises(InputError, match=r"written as \.vtk or \.vtu"):
        Grid(axes, {}, {"u": values}).to_vtk(tmp_path / "a.txt")


def test_without_meshio_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "meshio", None)
    axis = np.linspace(0, 1, 3)
    with pytest.raises(InputError, match=r"pip install 'dudx\[mesh\]'"):
        Grid({"x": axis}, {}, {"u": axis}).to_vtk(tmp_path / "a.vtk")


def test_a_few_large_values_do_not_hide_the_others() -> None:
    values = np.linspace(0, 1, 1000).reshape(20, 50)
    assert without_outliers(values) == (None, None)
    values[3, 4], values[0, 0] = 1e3, np.nan
    low, high = without_outliers(values)
    assert low is None
    assert high == pytest.approx(0.99, abs=0.01)
    low, high = without_outliers(-values)
    assert low == pytest.approx(-0.99, abs=0.01)
    assert high is None
    assert without_outliers(np.full((2, 2), np.nan)) == (None, None)


def test_time_is_animated(tmp_path: Path) -> None:
    domain = Box((0, 0), (1, 1)) * Interval(0, 1)
    conditions = [Initial(u=0.0), Dirichlet(u=0.0)]
    problem = Problem(lambda u: u.t - u.xx - u.yy - 1, ("x", "y", "t"), domain, conditions)
    network = MLP(3, 1, 4, 1).double()
    solution = Solution(problem, network, make_settings(problem, "auto"), {"epochs": 1})
    page = solution.save_html(tmp_path / "a.html", frames=3).read_text()
    assert page.count('] = "data:image/png;base64,') == 3  # the frames
    assert 'type="range"' in page
    assert 'title="Play"' in page
    assert "://" not in page  # nothing is fetched
    with pytest.raises(InputError, match="two frames or more"):
        solution.save_html(tmp_path / "a.html", frames=1)
    solution.plot(tmp_path / "a.png")


def test_what_is_chosen_depends_on_the_problem() -> None:
    many = Problem(lambda u: u.laplacian(), [f"x{i}" for i in range(9)], Box([0] * 9, [1] * 9), [Dirichlet(u=0.0)])
    system = Problem(lambda u, v: (u.x - v.y, u.y + v.x), ("x", "y"), Box((0, 0), (1, 1)), [Dirichlet(u=0.0)])
    assert chosen(many)["sampling"] == "uniform"
    assert chosen(system)["batch"] < chosen(plate())["batch"]
    assert chosen(decay())["width"] < chosen(plate())["width"]
    assert make_settings(plate(), "auto").batch == chosen(plate())["batch"]
    assert make_settings(plate(), "auto", batch=7).batch == 7
    assert make_settings(plate(), "cpu").batch != chosen(plate())["batch"]


def test_residuals_are_tamed_where_values_on_the_boundary_jump() -> None:
    square = Box((0, 0), (1, 1))

    def with_lid(value: Any) -> Problem:
        conditions = [Dirichlet(u=value, on="top"), Dirichlet(u=0.0, on=["left", "right", "bottom"])]
        return Problem(lambda u: u.xx + u.yy, ("x", "y"), square, conditions)

    assert chosen(with_lid(1.0))["tame"]
    assert "tame" not in chosen(with_lid(lambda x: torch.sin(math.pi * x)))
    assert "tame" not in chosen(with_lid(0.0))


# -- measurements ------------------------------------------------------------------------------------------------------


def measured(count: int, noise: float = 0.0) -> Problem:
    draw = torch.Generator().manual_seed(0)
    t = 2 * torch.rand(count, 1, generator=draw, dtype=F64)
    u = 3 * torch.exp(-t) + noise * torch.randn(count, 1, generator=draw, dtype=F64)
    return Problem(lambda u, rate: u.t + rate * u, ("t",), Interval(0, 2), [Data(t, u=u)], unknowns={"rate": 0.3})


def test_a_tenth_of_many_measurements_is_kept_back_where_weights_find_themselves() -> None:
    problem = measured(60)
    objective = Objective(problem, make_settings(problem, "auto"))
    (name,) = objective.kept_back
    back, given = objective.kept_back[name]
    _, used = objective.draw(torch.Generator().manual_seed(0))
    assert used.kept_back is not None
    assert len(back) == 6
    assert len(used.points) == 54
    whole = problem.conditions[0].measured
    assert whole is not None
    assert torch.equal(torch.cat([back, used.points]).sort(dim=0).values, whole[0].sort(dim=0).values)
    rows = torch.cdist(back, whole[0]).argmin(dim=1)
    assert torch.equal(given["g_u"], whole[1]["g_u"][rows])
    assert not Objective(measured(40), make_settings(problem, "auto")).kept_back
    assert not Objective(problem, make_settings(problem, "smoke", weights="fixed")).kept_back


def test_measurements_count_by_what_they_miss_beside_the_equation() -> None:
    problem = measured(60)
    objective = Objective(problem, make_settings(problem, "auto"))
    _, part = objective.draw(torch.Generator().manual_seed(0))
    noise, network = Noise(), MLP(1, 1, 4, 1).double()
    assert noise.weight(part, network, dudx.Taylor()) is None  # before the first step
    noise.equation = 0.5
    assert part.kept_back is not None
    x, data = part.kept_back
    missed = float((network(x) - data["g_u"]).square().mean().detach())
    assert noise.weight(part, network, dudx.Taylor()) == pytest.approx(0.5 / missed)
    noise.equation = 0.05
    assert noise.weight(part, network, dudx.Taylor()) == pytest.approx(0.5 / missed * 10**-0.1)
    other = Noise()
    other.load_state_dict(noise.state_dict())
    assert other.state_dict() == noise.state_dict()


def test_noise_is_not_fitted() -> None:
    """With 20 neurons and 54 measurements a network that fits them all misses the solution by the noise."""
    solution = solve(
        measured(60, noise=0.3), minutes=1, windows=False, epochs=60, width=20, depth=1, batch=60, quiet=True
    )
    t = np.linspace(0, 2, 50)[:, None]
    miss = np.sqrt(np.mean((solution(t) - 3 * np.exp(-t)) ** 2))
    assert miss < 0.15
    assert solution.result["unknowns"]["rate"] == pytest.approx(1.0, abs=0.2)


def test_what_solve_cannot_do_is_a_sentence() -> None:
    with pytest.raises(InputError, match=r"takes a dudx\.lab\.Problem"):
        solve("poisson")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="positive number of minutes"):
        solve(plate(), minutes=0)
    with pytest.raises(InputError, match="cut into windows"):
        solve(plate(), minutes=1, windows=True, **TINY)


# -- windows of time ---------------------------------------------------------------------------------------------------


def test_windows_go_on_where_the_last_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "_GOOD", 1e-2)
    solution = solve(decay(), minutes=2, windows=True, epochs=30, **TINY)  # steps end it, not time
    assert solution.result["windows"][0]["from"] == 0
    assert solution.result["windows"][-1]["to"] == 2
    assert len(solution.result["windows"]) > 1
    assert solution.error(lambda t: 3 * np.exp(-t)) < 1e-2
    t = np.linspace(0, 2, 40)[:, None]
    model = solution.network
    assert isinstance(model, time_windows.Windows)
    for window, network in zip(solution.result["windows"], model.networks, strict=True):
        inside = (t[:, 0] > window["from"]) & (t[:, 0] < window["to"])
        assert np.allclose(solution(t[inside]), network(torch.from_numpy(t[inside])).detach().numpy())
    assert np.abs(solution.residual(t)).max() < 0.5


def test_what_is_carried_over_is_the_value_and_its_derivative_in_time() -> None:
    conditions = [Initial(u=lambda x: torch.sin(x), u_t=0.0), Dirichlet(u=0.0)]
    problem = Problem(lambda u: u.tt - u.xx, ("x", "t"), Interval(0, math.pi) * Interval(0, 2), conditions)
    network = MLP(2, 1, 5, 2).double()
    later = time_windows.window_problem(problem, 1.0, 1.5, network)
    assert later.domain.bounds == ((0.0, 1.0), (math.pi, 1.5))
    initial = next(condition for condition in later.conditions if condition.name == "initial")
    x, data = initial.sample(9, torch.Generator().manual_seed(0), torch.device("cpu"), F64)
    assert (x[:, 1] == 1.0).all()
    value, slope = dudx.evaluate(network, x, [dudx.D(), dudx.D(1)], dudx.AD())
    assert torch.allclose(data["g_u"], value.detach())
    assert torch.allclose(data["g_u_t"], slope.detach())
    assert time_windows.can_be_cut(problem)
    assert not time_windows.can_be_cut(plate())
    measured = Problem(lambda u: u.t + u, ("t",), Interval(0, 2), [Initial(u=1.0), Data([1.0], u=0.4)])
    assert not time_windows.can_be_cut(measured)


@pytest.mark.parametrize("lost", [True, False])
def test_windows_are_used_where_one_network_is_lost(lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "CHECKS", ((1 / 8, -1.0 if lost else math.inf),))
    monkeypatch.setattr(staged, "_GOOD", math.inf)
    monkeypatch.setattr(stage, "FIRST_STEPS", 8)
    solution = solve(decay(), minutes=2, epochs=8, **TINY)
    assert ("windows" in solution.result) is lost
    assert solution.result["cpu_seconds"] > 0
