"""The examples run; the one that trains does so for seconds here."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_engine_of_ones_own_agrees_and_refuses(script: Callable[..., str]) -> None:
    said = script(EXAMPLES / "custom_engine.py")
    assert "largest difference" in said
    assert float(said.split("largest difference ")[1].split()[0]) < 1e-12
    assert "use dudx.AD()" in said


def test_the_engine_of_ones_own_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dudx.lab import file_formats, make_settings, train

    monkeypatch.syspath_prepend(str(EXAMPLES))
    ends = []
    for engine in ("custom_engine:ComplexStep", "ad"):
        settings = make_settings("custom_engine:transport", "smoke", engine=engine, dtype="float64")
        result = train(settings, tmp_path / engine.replace(":", "-"))
        assert (result["status"], result["step"]) == ("finished", None)
        ends.append(file_formats.read_checkpoint(tmp_path / engine.replace(":", "-") / "checkpoint.pt")["model"])
    for name, weights in ends[0].items():  # both exact to rounding, which twenty steps of Adam hardly multiply
        assert torch.allclose(weights, ends[1][name], rtol=1e-8, atol=1e-10)


def test_the_problem_of_ones_own_trains_and_moves_its_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dudx.lab import make_settings, train

    monkeypatch.syspath_prepend(str(EXAMPLES))
    result = train(make_settings("own_problem:viscosity", "smoke", epochs=30), tmp_path / "run")
    assert result["status"] == "finished"
    spec = importlib.util.find_spec("own_problem")
    assert spec is not None
    start = math.log(10 * 0.01 / math.pi)
    assert result["unknowns"]["log_nu"] != pytest.approx(start, abs=1e-6)
    assert "log_nu" in (tmp_path / "run" / "metrics.csv").read_text().splitlines()[0]


@pytest.mark.parametrize("samples", [4, None], ids=["estimate", "exact"])
def test_the_laplacian_in_many_dimensions_trains(samples: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    solve = importlib.import_module("many_dimensions").solve
    before, _ = solve(20, samples, epochs=1, batch=64)
    after, _ = solve(20, samples, epochs=150, batch=64)
    assert after < 0.5 * before


def test_the_deeponet_learns_functions_that_it_has_not_seen(script: Callable[..., str], tmp_path: Path) -> None:
    said = script(EXAMPLES / "deeponet.py", "--steps", "300", "--picture", str(tmp_path / "seen.png"))
    assert float(said.split("relative error ")[1].split()[0]) < 15  # percent; 0.5 with all steps
    assert (tmp_path / "seen.png").stat().st_size > 10_000
