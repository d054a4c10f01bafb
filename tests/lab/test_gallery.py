"""The gallery: its runner, its problems, its references."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import dudx
from dudx.errors import InputError
from dudx.lab import Problem
from examples import run_gallery as galleries
from examples.run_gallery import FOLDER

F64 = torch.float64

PROBLEM = '''"""A line."""
from dudx.lab import Dirichlet, Interval, Problem
# a comment
problem = Problem(
    lambda u: u.xx, ("x",), Interval(0, 1), [Dirichlet(u=lambda x: x)], title="Line"
)
'''


def test_a_gallery_is_one_table_and_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = tmp_path / "gallery", tmp_path / "out"
    (folder / "references").mkdir(parents=True)
    (folder / "line.py").write_text(PROBLEM)
    (folder / "references" / "line.py").write_text("def reference():\n    return lambda x: x\n")
    (folder / "broken.py").write_text(PROBLEM.replace("u.xx", "u.zz"))
    said: list[str] = []
    rows = galleries.run([], folder, out, "smoke", report=said.append)
    assert [row["name"] for row in rows] == ["broken", "line"]
    assert "named 'zz'" in rows[0]["failed"]
    assert rows[1]["lines"] == 4
    assert 0 < rows[1]["error"] < 10
    table = (out / "README.md").read_text()
    assert "| [Line](line.png) |" in table
    assert "failed: " in table
    assert (out / "line.png").exists()
    said.clear()
    assert galleries.run([], folder, out, "smoke", report=said.append) == rows
    assert said == []
    (out / "line.json").unlink()
    result = {"status": "interrupted", "epochs": 1}
    monkeypatch.setattr(galleries, "solve", lambda problem, *_, **__: SimpleNamespace(result=result))
    assert [row["name"] for row in galleries.run([], folder, out, "smoke", report=said.append)] == ["broken"]
    assert "line was interrupted" in said[-1]
    assert not (out / "line.json").exists()
    with pytest.raises(InputError, match="no 'circle' in the gallery"):
        galleries.run(["circle"], folder, out, "smoke")


@pytest.mark.parametrize("name", galleries.names_in(FOLDER))
def test_every_problem_of_the_gallery_is_stated_without_doubts(name: str) -> None:
    problem = galleries.loaded(FOLDER / f"{name}.py").problem
    assert isinstance(problem, Problem)
    assert problem.warnings == ()
    assert (FOLDER / "references" / f"{name}.py").exists()


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("kovasznay", 1e-3),
        ("helmholtz", 1e-3),
        ("plate", 2e-2),
        ("kdv", 2e-2),
        ("conductivity", 1e-2),
        ("drum", 1e-2),
        ("poisson_100", 1e-2),
        ("black_scholes", 2e-2),
    ],
)
def test_exact_references_solve_the_equations(name: str, step: float) -> None:
    problem = galleries.loaded(FOLDER / f"{name}.py").problem
    apart = galleries.loaded(FOLDER / "references" / f"{name}.py")
    exact = apart.reference()
    for key, value in getattr(apart, "UNKNOWNS", {}).items():
        problem.unknowns[key].data.fill_(value)
    names = [n for n in problem.inputs if n in exact.__code__.co_varnames[: exact.__code__.co_argcount]]

    def model(x: torch.Tensor) -> torch.Tensor:
        values = exact(*(x[:, problem.inputs.index(n)].numpy() for n in names)) if names else exact(x.numpy())
        return torch.from_numpy(np.stack(values if isinstance(values, tuple) else (values,), axis=1))

    low, high = (torch.tensor(corner, dtype=F64) for corner in problem.domain.bounds)
    # Away from the boundary, beyond which a formula need not hold, and from a kink at the start.
    x = (low + high) / 2 + 0.6 * (problem.domain.sobol(40, dtype=F64) - (low + high) / 2)
    found = problem.residual(model, x, dudx.FD(step, accuracy=6))
    plain = problem.residual(lambda x: model(x) * (1 + 0.01 * x[:, :1]), x, dudx.FD(step, accuracy=6))
    for r, other in zip(*(v if isinstance(v, tuple) else (v,) for v in (found, plain)), strict=True):
        assert float(r.detach().abs().max()) < 0.02 * float(other.detach().abs().max())
