"""Members that are trained together end where single runs with their seeds do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import Said
from resuming import assert_resumed_bit_for_bit, killed_at, parameters
from torch import nn

from dudx.errors import InputError
from dudx.lab import make_settings, solve, storage, train
from dudx.lab.problems import problem as problem_named
from dudx.lab.run.multi_seed import Together
from dudx.lab.run.settings import Settings
from dudx.lab.run.trainer import Trainer

#: Differences divide by steps and their squares, and so does rounding.
TOLERANCE = {"ad": 1e-10, "taylor": 1e-10, "fd": 1e-7, "efd": 1e-7, "sfd": 1e-7}


def settings_of(problem: str = "burgers", **options: Any) -> Settings:
    return make_settings(problem, "smoke", **{"dtype": "float64", "engine": "taylor", "seed": 5, **options})


def alone(settings: Settings, member: int) -> Settings:
    return settings.model_copy(update={"members": 1, "seed": settings.seed + member})


def assert_same_as_single_runs(settings: Settings, folder: Path, tolerance: float) -> dict[str, Any]:
    result = train(settings, folder / "together")
    together = parameters(folder / "together").items()
    stacked = [values for name, values in together if name.startswith("stacked")]
    assert [row["seed"] for row in result["members"]] == list(range(settings.seed, settings.seed + settings.members))
    for member in range(settings.members):
        single = train(alone(settings, member), folder / f"single-{member}")
        state = parameters(folder / f"single-{member}").items()
        trained = [
            values for name, values in state if name.endswith(("weight", "bias"))
        ]  # and not the domain's corners
        for ours, theirs in zip(stacked, trained, strict=True):
            assert torch.allclose(ours[member], theirs, rtol=tolerance, atol=tolerance)
        for name in ("l2_relative", "max_error", "loss"):
            assert result["members"][member][name] == pytest.approx(single[name], rel=1e-6)
    return result


@pytest.mark.parametrize("engine", TOLERANCE)
def test_members_have_the_numbers_of_single_runs(engine: str, tmp_path: Path) -> None:
    settings = settings_of(engine=engine, members=3)
    assert_same_as_single_runs(settings, tmp_path, TOLERANCE[engine])


@pytest.mark.parametrize(
    "options",
    [
        {"weights": "auto", "sampling": "0.5 uniform + 0.5 adaptive", "resample": 3},
        {"problem": "heat", "chunk": 24, "optimizer": "torch.optim:RMSprop", "schedule": "constant"},
        {"problem": "poisson", "weight_boundary": 0.0, "chunk": "whole"},
    ],
    ids=["weights and points that are found", "slices", "a part without weight"],
)
def test_whatever_a_run_does_beside_its_steps(options: dict[str, Any], tmp_path: Path) -> None:
    assert_same_as_single_runs(settings_of(**options, members=3), tmp_path, 1e-10)


@pytest.mark.slow
@pytest.mark.filterwarnings("error::dudx.CompilationWarning")
@pytest.mark.parametrize("engine", ["taylor", "sfd"])
def test_compiled_members_have_the_numbers_of_single_runs(engine: str, tmp_path: Path) -> None:
    result = assert_same_as_single_runs(settings_of(engine=engine, members=3, compile=True), tmp_path, 1e-7)
    assert result["compile_seconds"] > 0


def test_the_mean_of_all_members_is_the_prediction(tmp_path: Path) -> None:
    result = train(settings_of(members=3), tmp_path)
    errors = [row["l2_relative"] for row in result["members"]]
    assert result["mean"]["l2_relative"] == pytest.approx(np.mean(errors))
    assert result["spread"]["l2_relative"] == pytest.approx(np.std(errors, ddof=1))
    arrays = storage.read_arrays(tmp_path / "prediction.npz")
    trainer = Trainer(problem_named("burgers"), alone(settings_of(), 0), tmp_path)
    predictions = []
    for member in range(3):
        with torch.no_grad():
            for mine, stacked in zip(trainer.model.parameters(), parameters(tmp_path).values(), strict=True):
                mine.copy_(stacked[member])
        predictions.append(trainer.evaluation.predict(arrays["points"]))
    assert np.allclose(arrays["prediction"], np.mean(predictions, axis=0), atol=1e-5)
    assert np.allclose(arrays["spread"], np.std(predictions, axis=0, ddof=1), atol=1e-5)
    error = np.linalg.norm(np.mean(predictions, axis=0) - arrays["reference"]) / np.linalg.norm(arrays["reference"])
    assert result["l2_relative"] == pytest.approx(error, rel=1e-4)


@pytest.mark.parametrize(
    "options",
    [{"engine": "sfd"}, {"engine": "taylor", "weights": "auto", "resample": 4}, {"engine": "ad", "dtype": "float32"}],
    ids=str,
)
def test_killed_and_resumed_bit_for_bit(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(**options, members=2)
    whole = train(settings, tmp_path / "whole")
    killed_at(13, settings, tmp_path / "killed", monkeypatch, Together)
    assert not (tmp_path / "killed" / "result.json").exists()
    resumed = train(settings, tmp_path / "killed", resume=True)
    assert_resumed_bit_for_bit(tmp_path / "whole", tmp_path / "killed")
    assert resumed["members"] == whole["members"]


def test_a_member_that_diverges_is_named(tmp_path: Path, dudx: Callable[..., Said]) -> None:
    out = str(tmp_path / "run")
    options = ("--profile", "smoke", "--members", "2", "--learning-rate", "1e30", "--seed", "5", "--out", out)
    code, _, said = dudx("train", "burgers", *options)
    assert code == 3
    assert "the loss of seed 5, 6 is not finite after epoch" in said


def test_the_command_prints_each_member(tmp_path: Path, dudx: Callable[..., Said]) -> None:
    code, printed, _ = dudx("train", "poisson", "--profile", "smoke", "--members", "2", "--out", str(tmp_path / "run"))
    assert code == 0
    assert "seed 0: " in printed
    assert "seed 1: " in printed
    assert " ± " in printed


class Remembering(nn.Module):
    """A network with a tensor of its own that is neither a parameter nor a buffer."""

    def __init__(self, inputs: int, outputs: int, width: int, bounds: object):
        super().__init__()
        self.layer, self.frequencies = nn.Linear(width, outputs), torch.randn(inputs, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.sin(torch.matmul(x, self.frequencies.to(x))))


class Dropping(nn.Module):
    def __init__(self, inputs: int, outputs: int, width: int, bounds: object):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Dropout(0.5), nn.Linear(width, outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"optimizer": "lm"}, "looks at a whole network"),
        ({"optimizer": "soap"}, "looks at a whole network"),
        ({"optimizer": "lbfgs"}, "looks at a whole network"),
        ({"optimizer": "torch.optim:Adafactor"}, "looks at a whole network"),
        ({"engine": "stde"}, "with the engines ad, fd, efd, sfd, taylor"),
        ({"lbfgs_epochs": 3}, "leave out lbfgs_epochs"),
        ({"settled": 3}, "leave out settled"),
        ({"estimate": True}, "leave out estimate"),
        ({"network": "batchnorm"}, "influence each other"),
        ({"network": "test_members:Remembering"}, "register_buffer"),
        ({"network": "test_members:Dropping"}, "torch's own generator"),
    ],
)
def test_what_members_cannot_do_is_said_before_anything_is_made(
    options: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    with pytest.raises(InputError, match=sentence):
        train(settings_of(**options, members=2), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_solving_is_for_one_network(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave out members"):
        solve(problem_named("poisson"), windows=False, out=tmp_path / "run", quiet=True, members=2)
    assert not (tmp_path / "run").exists()
