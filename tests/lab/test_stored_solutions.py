"""Solutions that are loaded, started from, watched, and what is derived from them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import Said

from dudx.errors import InputError
from dudx.lab import (
    Box,
    Data,
    Dirichlet,
    Disc,
    Initial,
    Integral,
    Interval,
    Problem,
    Progress,
    Solution,
    load,
    make_settings,
    solve,
    train,
)
from dudx.lab.atomic_files import DamagedError
from dudx.lab.solving import stage, staged

TINY: dict[str, Any] = {
    "width": 6, "depth": 2, "batch": 60, "boundary_batch": 30, "initial_batch": 30, "quiet": True, "minutes": 10,
}  # fmt: skip


def plate(source: float = 1.0, hole: float = 0.2, value: float = 0.0, guess: float = 1.0) -> Problem:
    return Problem(
        lambda u, k: k * (u.xx + u.yy) + source,
        ("x", "y"),
        Box((0, 0), (1, 1)) - Disc((0.5, 0.5), hole),
        [Dirichlet(u=value), Data([[0.1, 0.1], [0.3, 0.2]], u=[0.01, 0.02])],
        unknowns={"k": guess},
    )


def decay() -> Problem:
    return Problem(lambda u: u.t + u, ("t",), Interval(0, 2), [Initial(u=3.0)])


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Solution, Path]:
    folder = tmp_path_factory.mktemp("solved") / "run"
    return solve(plate(), out=folder, epochs=6, **TINY), folder


POINTS = np.array([[0.1, 0.2], [0.7, 0.9], [0.05, 0.5]])

# -- loading ---------------------------------------------------------------------------------------------------------


def test_a_loaded_solution_is_equal_to_the_last_bit(solved: tuple[Solution, Path]) -> None:
    solution, folder = solved
    loaded = load(folder, plate())
    assert np.array_equal(loaded(POINTS), solution(POINTS))
    assert np.array_equal(loaded.residual(POINTS), solution.residual(POINTS))
    assert loaded.result == json.loads((folder / "result.json").read_text())
    assert loaded.history == solution.history
    assert loaded.settings == solution.settings


def test_constants_are_those_that_were_found_and_not_those_of_the_problem_now(solved: tuple[Solution, Path]) -> None:
    solution, folder = solved
    before = solution.residual(POINTS)
    solution.problem.restart()
    assert np.array_equal(solution.residual(POINTS), before)
    assert (
        float(load(folder, plate()).evaluate(lambda k, x: k + 0 * x, POINTS)[0, 0]) == solution.result["unknowns"]["k"]
    )


@pytest.mark.parametrize(
    ("other", "part"),
    [
        (plate(source=1.1), "the equation"),
        (plate(hole=0.21), "the condition 'boundary'"),
        (plate(value=0.5), "the condition 'boundary'"),
        (plate(guess=2.0), "the equation"),
    ],
)
def test_the_solution_of_another_problem_is_refused(solved: tuple[Solution, Path], other: Problem, part: str) -> None:
    with pytest.raises(InputError, match="is of another problem") as caught:
        Solution.load(solved[1], other)
    assert part in str(caught.value)
    with pytest.raises(InputError, match="its functions u of x, y are not u of t"):
        Solution.load(solved[1], decay())


def test_windows_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "CHECKS", ((1 / 2, -1.0),))
    monkeypatch.setattr(staged, "_GOOD", math.inf)
    solution = solve(decay(), out=tmp_path / "run", windows=True, epochs=8, **TINY)
    assert len(solution.result["windows"]) > 1
    t = np.linspace(0, 2, 50)
    loaded = load(tmp_path / "run", decay())
    assert np.array_equal(loaded(t), solution(t))
    assert np.array_equal(loaded.residual(t), solution.residual(t))
    assert np.array_equal(loaded.evaluate(lambda u: u.t, t), solution.evaluate(lambda u: u.t, t))


def test_a_run_of_the_command_line_is_loaded_by_the_name_of_its_problem(tmp_path: Path) -> None:
    train(make_settings("poisson", "smoke"), tmp_path / "run")
    solution = load(tmp_path / "run")
    assert solution.problem.name == "poisson"
    assert solution(POINTS).shape == (3, 1)


def test_folders_that_hold_no_solution_are_refused(solved: tuple[Solution, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no run"):
        load(tmp_path)
    with pytest.raises(InputError, match="a problem of your own; give it too"):
        load(solved[1])
    with pytest.raises(InputError, match="got str"):
        load(solved[1], "plate")  # type: ignore[arg-type]


@pytest.mark.parametrize("network", ["attention", "batchnorm"])
@pytest.mark.parametrize("coupled", ["isolate", "fixed"])
def test_a_coupled_network_is_a_function_of_single_points(network: str, coupled: str, tmp_path: Path) -> None:
    problem = Problem(lambda u: u.xx + u.yy, ("x", "y"), Box((0, 0), (1, 1)), [Dirichlet(u=lambda x: x)])
    solution = solve(problem, network=network, coupled=coupled, epochs=2, out=tmp_path / "run", **TINY)
    for function in (solution, solution.residual, lambda x: solution.evaluate(lambda u: u.x, x)):
        alone = np.concatenate([function(POINTS[i : i + 1]) for i in range(len(POINTS))])
        assert np.allclose(function(POINTS), alone, atol=1e-12)
    loaded = load(tmp_path / "run", problem)
    assert np.array_equal(loaded(POINTS), solution(POINTS))
    assert np.array_equal(loaded.residual(POINTS), solution.residual(POINTS))


def test_a_damaged_network_is_refused(solved: tuple[Solution, Path], tmp_path: Path) -> None:
    kept = solved[0].save(tmp_path / "kept")
    content = (kept / "trained.pt").read_bytes()
    (kept / "trained.pt").write_bytes(content[:-200] + bytes(200))
    with pytest.raises(DamagedError, match="damaged"):
        load(kept, plate())
    (kept / "SHA256SUMS").unlink()
    torch.save({"networks": []}, kept / "trained.pt")
    with pytest.raises(DamagedError, match="inputs"):
        load(kept, plate())


# -- starting points and callbacks -----------------------------------------------------------------------------------


def test_training_starts_from_a_solution(solved: tuple[Solution, Path]) -> None:
    solution, _ = solved
    seen: list[Progress] = []
    similar = plate(source=1.05)
    few = {key: value for key, value in TINY.items() if key not in ("width", "depth")}
    found = solve(similar, start=solution, epochs=1, on_step=seen.append, **few)
    assert found.settings.width == 6
    assert float(found.history[0]["loss"]) < 0.1 * float(solution.history[0]["loss"])
    with pytest.raises(InputError, match=r"has another network: .* has shape \(6, 2\), not \(8, 2\)"):
        solve(similar, start=solution, epochs=1, **{**TINY, "width": 8})
    with pytest.raises(InputError, match="got int"):
        solve(similar, start=1, **TINY)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="starts from the initial values"):
        solve(decay(), start=solution, windows=True, **TINY)


def test_training_starts_where_the_last_one_ended(solved: tuple[Solution, Path]) -> None:
    solution, _ = solved
    seen: list[Any] = []

    def first(now: Progress) -> bool:
        seen.append((now.loss, now.step, now.window))
        return True

    again = solve(plate(), start=solution, on_step=first, epochs=5, **TINY)
    assert len(seen) == 1
    assert again.result["stopped"] == "callback"
    assert again.result["unknowns"]["k"] != 1.0


def test_callbacks_see_the_training_and_end_it() -> None:
    steps: list[Progress] = []
    estimates: list[Progress] = []
    solution = solve(
        plate(), epochs=16, on_step=lambda now: steps.append(now) or now.step == 9, on_estimate=estimates.append, **TINY
    )
    assert [now.step for now in steps] == list(range(1, 10))
    assert solution.result["stopped"] == "callback"
    assert solution.result["epochs"] == 9
    assert solution.estimate is not None  # of the network at the end
    assert [now.step for now in estimates] == [2, 4, 8]
    assert all(now.estimate is not None for now in estimates)
    assert set(steps[0].losses) == {"pde", "boundary", "data"}
    assert steps[-1].unknowns["k"] == pytest.approx(solution.result["unknowns"]["k"])
    with pytest.raises(InputError, match="on_step is a function"):
        solve(plate(), on_step=3, **TINY)  # type: ignore[arg-type]


# -- derived quantities ----------------------------------------------------------------------------------------------


class Exact(torch.nn.Module):
    """u = x² y, v = x y²."""

    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.one * torch.cat([x[:, :1] ** 2 * x[:, 1:2], x[:, :1] * x[:, 1:2] ** 2], dim=1)


def exact(domain: Any) -> Solution:
    problem = Problem(lambda u, v: (u.xx - 2 * v.y, v.x), ("x", "y"), domain, [Dirichlet(u=0.0, v=0.0)])
    return Solution(problem, Exact(), make_settings(problem, "auto"), {"epochs": 0})


def test_expressions_are_evaluated() -> None:
    solution = exact(Box((0, 0), (1, 2)))
    x, y = POINTS.T
    assert np.allclose(solution.evaluate(lambda u, v: v.x - u.y, POINTS)[:, 0], y**2 - x**2)
    both = solution.evaluate(lambda u, x: (u.xx * u, x), POINTS)
    assert np.allclose(both, np.stack([2 * y * x**2 * y, x], axis=1))
    with pytest.raises(InputError, match="'w'"):
        solution.evaluate(lambda w: w, POINTS)
    with pytest.raises(InputError, match="An expression is a function"):
        solution.evaluate(3.0, POINTS)  # type: ignore[arg-type]


def near(found: Integral, value: float, relative: float = 1e-6) -> None:
    assert found.value == pytest.approx(value, rel=relative, abs=relative)
    assert abs(found.value - value) < 5 * found.error + 1e-12
    assert float(found) == found.value


def test_integrals_over_the_domain_its_boundary_and_lines() -> None:
    solution = exact(Box((0, 0), (1, 2)))
    near(solution.integral(lambda u: u), 2 / 3)
    near(solution.integral(lambda x: x), 1.0)
    near(solution.integral(lambda u: u, x=0.5), 0.5)
    near(solution.integral(lambda u: u, on="top"), 2 / 3)
    near(solution.integral(lambda u, n: u.along(n), on="right"), 4.0)
    # Gauss's theorem: the flux of the gradient is the integral of the Laplacian.
    near(solution.integral(lambda u, n: u.along(n), on="boundary"), float(solution.integral(lambda u: u.xx + u.yy)))
    near(solution.integral(lambda y: y, line=((0, 0), (1, 2))), math.sqrt(5))
    assert solution.integral(lambda u: u, on="top").measure == pytest.approx(1.0)


def test_integrals_around_a_hole() -> None:
    solution = exact(Box((0, 0), (1, 1)) - Disc((0.5, 0.5), 0.2))
    near(solution.integral(lambda x: 1 + 0 * x, on="holes"), 0.4 * math.pi, 1e-9)
    near(solution.integral(lambda x: 1 + 0 * x), 1 - 0.04 * math.pi, 2e-3)
    near(solution.integral(lambda x, y: x, on=lambda x: x > 0.8), 0.2 * 0.9 * 2 + 1.0, 2e-3)


def test_integrals_over_time_and_at_a_time() -> None:
    problem = Problem(lambda u, v: (u.t, v.t), ("x", "t"), Interval(0, 1) * Interval(0, 3), [Initial(u=0.0, v=0.0)])
    solution = Solution(problem, Exact(), make_settings(problem, "auto"), {"epochs": 0})
    near(solution.integral(lambda u: u), 1.5)
    near(solution.integral(lambda u: u, t=2.0), 2 / 3)
    near(solution.integral(lambda u: u, on="right", t=2.0), 2.0)
    near(solution.integral(lambda u: u, on="right"), 4.5)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda s: s.integral(lambda u: (u, u)), "one value"),
        (lambda s: s.integral(lambda u: u, z=1.0), "no input named 'z'"),
        (lambda s: s.integral(lambda u: u, x=0.5, y=0.5), "over one input at least"),
        (lambda s: s.integral(lambda u: u, x=7.0), "No point of the domain has x = 7"),
        (lambda s: s.integral(lambda u: u, on="left", x=0.0), "only the time"),
        (lambda s: s.integral(lambda u: u, on="nowhere"), "nowhere"),
        (lambda s: s.integral(lambda u: u, on="left", line=((0, 0), (1, 1))), "give one of them"),
        (lambda s: s.integral(lambda u: u, line=((0, 0), (1, 1, 1))), "a coordinate for each of x, y"),
        (lambda s: s.integral(lambda u: u, line=((0, 0), (3, 1))), "leaves the domain"),
        (lambda s: s.integral(lambda u: u, n=0), "number of points"),
        (lambda s: s.integral(lambda u, n: u.along(n)), "'n'"),
        (lambda s: s.plot(arrows=("u", "w")), "Arrows are two"),
        (lambda s: s.plot(deformed=("u",)), "Displacements are two"),
        (lambda s: s.grid(11, of={}), "Expressions have names"),
    ],
)
def test_what_cannot_be_derived_is_refused(call: Callable[[Solution], Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        call(exact(Box((0, 0), (1, 2))))


# -- pictures --------------------------------------------------------------------------------------------------------


def test_expressions_arrows_and_deformed_shapes_are_drawn(tmp_path: Path) -> None:
    solution = exact(Box((0, 0), (1, 2)) - Disc((0.5, 0.5), 0.2))
    figure = solution.plot(
        tmp_path / "a.png", of={"vorticity": lambda u, v: v.x - u.y, "u": lambda u: u, "x": lambda x: x}
    )
    assert [ax.get_title() for ax in figure.axes[:3]] == ["vorticity", "u", "x"]
    assert (tmp_path / "a.png").stat().st_size > 10_000
    lines = [len(ax.collections) for ax in solution.plot(arrows=("u", "v")).axes[:4]]
    assert lines[0] == lines[2] == 2
    assert lines[1] == lines[3] == 1
    assert "displacements × " in solution.plot(deformed=("u", "v")).axes[0].get_title()
    grid = solution.grid(5, of=lambda u, v: (u, v))
    assert list(grid.values) == ["expression 1", "expression 2"]
    assert list(solution.grid(5, of={"w": lambda v: 2 * v}, x=0.5).axes) == ["y"]


def test_measured_values_are_drawn() -> None:
    problem = Problem(lambda u: u.t + u, ("t",), Interval(0, 2), [Initial(u=3.0), Data([0.5, 1.5], u=[1.8, 0.7])])
    solution = solve(problem, epochs=1, **TINY)
    drawn = solution.plot().axes[0]
    assert [line.get_label() for line in drawn.get_lines()] == ["u", "u, data"]


def test_a_problem_of_ones_own_gets_its_pictures(
    dudx: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_line.py").write_text(
        "from dudx.lab import *\n"
        "problem = Problem(lambda u: u.xx, ('x',), Interval(0, 1), [Dirichlet(u=lambda x: x)])\n"
    )
    code, _, said = dudx("train", "own_line", "--out", "run")
    assert code == 1
    assert "'own_line:problem'" in said
    code, out, said = dudx("train", "own_line:problem", "--profile", "smoke", "--epochs", "2", "--out", "run")
    assert code == 0, said
    assert (tmp_path / "run" / "solution.png").stat().st_size > 10_000
    assert "relative L2" not in out
    (tmp_path / "run" / "solution.png").unlink()
    assert dudx("plot", "run", "--problem", "own_line:problem")[0] == 0
    assert (tmp_path / "run" / "solution.png").exists()


def test_notebooks_show_problems_and_solutions(solved: tuple[Solution, Path]) -> None:
    solution, _ = solved
    shown = solution._repr_html_()
    assert shown.count("data:image/png;base64,") == 1
    assert "<td>k (found)</td>" in shown
    table = plate()._repr_html_()
    assert "x from 0 to 1, y from 0 to 1" in table
    assert "Dirichlet, Data" in table
    assert "<td>unknown constants</td><td>k</td>" in table
    odd = Problem(lambda u: u.xx, ("x",), Interval(0, 1), [Dirichlet(u=0.0, on="left")], title="<b>")
    assert "&lt;b&gt;" in odd._repr_html_()
    assert "warnings" in odd._repr_html_()


# -- export ----------------------------------------------------------------------------------------------------------


def test_a_solution_s_network_is_exported(solved: tuple[Solution, Path], tmp_path: Path) -> None:
    """As docs/problems.md shows."""
    solution, _ = solved
    x = torch.rand(10, 2, dtype=torch.float64)
    rows = torch.export.Dim("rows")
    program = torch.export.export(solution.network, (x,), dynamic_shapes=({0: rows},))
    torch.export.save(program, tmp_path / "network.pt2")
    again = torch.export.load(tmp_path / "network.pt2").module()
    y = torch.rand(23, 2, dtype=torch.float64)
    assert torch.equal(again(y), solution.network(y))


def test_a_solution_s_network_is_exported_to_onnx(solved: tuple[Solution, Path], tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="optional")
    runtime = pytest.importorskip("onnxruntime", reason="optional")
    solution, _ = solved
    x, rows = torch.rand(10, 2, dtype=torch.float64), torch.export.Dim("rows")
    program = torch.export.export(solution.network, (x,), dynamic_shapes=({0: rows},))
    torch.onnx.export(program, f=str(tmp_path / "network.onnx"))
    session, y = runtime.InferenceSession(str(tmp_path / "network.onnx")), torch.rand(23, 2, dtype=torch.float64)
    found = session.run(None, {session.get_inputs()[0].name: y.numpy()})[0]
    assert np.allclose(found, solution.network(y).detach().numpy(), atol=1e-12)
