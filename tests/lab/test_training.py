from __future__ import annotations

import json
import math
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dudx.errors import CompilationWarning, InputError
from dudx.lab import file_formats, make_settings, train
from dudx.lab.locks import LockedError, locked
from dudx.lab.problems import problem, problems
from dudx.lab.run.folder import LOCK
from dudx.lab.run.objective import Objective
from dudx.lab.run.trainer import Trainer


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    return file_formats.read_checkpoint(folder / "checkpoint.pt")["model"]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("name", problems())
def test_a_run_leaves_everything_it_promises(name: str, tmp_path: Path) -> None:
    result = train(make_settings(name, "smoke", engine="sfd"), tmp_path / "run")
    assert result["status"] == "finished"
    on_disk = json.loads((tmp_path / "run" / "result.json").read_text())
    promised = {"problem", "engine", "seed", "epochs", "l2_relative", "smape", "max_error", "seconds", "status"}
    assert promised <= on_disk.keys()
    assert on_disk["problem"] == name
    assert on_disk["epochs"] == 20
    assert 0 < on_disk["l2_relative"] < 10
    arrays = file_formats.read_arrays(tmp_path / "run" / "prediction.npz")
    assert arrays["prediction"].shape == arrays["reference"].shape == (len(arrays["points"]), 1)
    expected = np.linalg.norm(arrays["prediction"] - arrays["reference"]) / np.linalg.norm(arrays["reference"])
    assert on_disk["l2_relative"] == pytest.approx(float(expected), rel=1e-4)  # the arrays are single precision
    rows = file_formats.read_table(tmp_path / "run" / "metrics.csv")
    assert [int(row["epoch"]) for row in rows] == [1, 5, 10, 15, 20]
    calibrations = json.loads((tmp_path / "run" / "calibrations.json").read_text())
    assert {(c["epoch"], c["order"]) for c in calibrations} == {(e, o) for e in (0, 10) for o in (1, 2)}
    assert all(c["step"] == c["steps"][int(np.argmin(c["rmse"]))] for c in calibrations)
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["torch"] == torch.__version__
    assert {p.name for p in (tmp_path / "run").iterdir() if p.name.startswith(".")} == set()


def test_training_reduces_the_error(tmp_path: Path) -> None:
    options = {"engine": "fd", "width": 32, "epochs": 300, "batch": 256, "boundary_batch": 128, "evaluate_every": 100}
    result = train(make_settings("burgers", "smoke", **options), tmp_path / "run")
    rows = file_formats.read_table(tmp_path / "run" / "metrics.csv")
    assert float(rows[-1]["loss"]) < 0.2 * float(rows[0]["loss"])
    assert result["l2_relative"] < 0.5


def test_the_loss_and_its_gradient_are_the_weighted_sum_of_the_parts() -> None:
    settings = make_settings("heat", "smoke", weight_boundary=3.0, weight_initial=7.0, dtype="float64")
    trainer = Trainer(problem("heat"), settings, Path())
    parts = trainer.objective.draw(trainer.generator)
    total, by_name = trainer.objective.gradient([trainer.model] * len(parts), parts, trainer.engine)
    ours = [p.grad.clone() for p in trainer.model.parameters()]
    trainer.model.zero_grad()

    def derivatives(points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = points.clone().requires_grad_(True)
        u = trainer.model(x)
        first = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        second = [torch.autograd.grad(first[:, k].sum(), x, create_graph=True)[0][:, k] for k in range(2)]
        return u, first, second[0] + second[1]

    _, first, laplacian = derivatives(parts[0].points)
    pde = (first[:, 2] - laplacian).square().mean()
    initial = trainer.model(parts[1].points).square().mean()
    u, first, _ = derivatives(parts[2].points)
    robin = ((first * parts[2].data["n"]).sum(1, keepdim=True) + u - parts[2].data["g"]).square().mean()
    expected = pde + 7 * initial + 3 * robin
    expected.backward()
    assert by_name["boundary"].item() == pytest.approx(robin.item(), rel=1e-12)
    assert total.item() == pytest.approx(expected.item(), rel=1e-12)
    for a, p in zip(ours, trainer.model.parameters(), strict=True):
        assert torch.allclose(a, p.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("engine", ["ad", "taylor", "fd"])
def test_slices_give_the_gradient_of_the_whole_batch(engine: str) -> None:
    gradients = []
    for chunk in ("whole", 7):
        settings = make_settings("heat", "smoke", engine=engine, chunk=chunk, dtype="float64")
        trainer = Trainer(problem("heat"), settings, Path())
        trainer.calibrate()
        parts = trainer.objective.draw(trainer.generator)
        trainer.objective.gradient([trainer.model] * len(parts), parts, trainer.engine)
        gradients.append([p.grad.clone() for p in trainer.model.parameters()])
    for whole, sliced in zip(*gradients, strict=True):
        # Differences divide rounding by the square of the step, here about 1e-6.
        tolerance = 1e-6 if engine == "fd" else 1e-10
        assert (whole - sliced).abs().max() < tolerance * (1 + whole.abs().max())


@pytest.mark.usefixtures("only_traced")
@pytest.mark.parametrize("engine", ["taylor", "sfd"])
@pytest.mark.parametrize("name", problems())
def test_every_part_of_the_loss_compiles(name: str, engine: str) -> None:
    gradients = []
    for compile in (False, True):
        settings = make_settings(name, "smoke", engine=engine, compile=compile, dtype="float64")
        trainer = Trainer(problem(name), settings, Path())
        trainer.calibrate()
        with warnings.catch_warnings():
            warnings.simplefilter("error", CompilationWarning)
            trainer._gradient(trainer.optimizer, trainer.objective.draw(trainer.generator))
        assert (trainer.objective.compile_seconds > 0) == compile
        gradients.append([p.grad.clone() for p in trainer.model.parameters()])
    for eager, compiled in zip(*gradients, strict=True):
        assert torch.allclose(eager, compiled, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("engine", "compile", "expected"), [("taylor", "auto", True), ("sfd", "auto", False), ("sfd", True, True)]
)
def test_compilation_is_left_to_the_engine_that_gains_from_it(engine: str, compile: Any, expected: bool) -> None:
    settings = make_settings("heat", "smoke", engine=engine, compile=compile)
    residuals = Objective(problem("heat"), settings).residuals
    assert [residual._compiled is not None for residual in residuals] == [expected] * 3


@pytest.mark.parametrize("chunk", [0, -4, "half"])
def test_a_chunk_is_a_number_of_points_or_a_way_to_choose_it(chunk: Any) -> None:
    with pytest.raises(InputError, match=rf"The option chunk = {chunk!r} is not right"):
        make_settings("heat", "smoke", chunk=chunk)


def test_points_are_drawn_anew_every_epoch_and_do_not_depend_on_the_engine() -> None:
    drawn = {}
    for engine in ("ad", "sfd"):
        trainer = Trainer(problem("burgers"), make_settings("burgers", "smoke", engine=engine), Path())
        drawn[engine] = [trainer.objective.draw(trainer.generator)[0].points for _ in range(2)]
    assert not torch.equal(*drawn["ad"])
    assert torch.equal(drawn["ad"][1], drawn["sfd"][1])


def test_calibration_knows_the_axes_of_normals() -> None:
    objective = Objective(problem("heat"), make_settings("heat", "smoke"))
    operators = objective.derivatives(objective.draw(torch.Generator().manual_seed(0)))
    assert sorted(map(repr, operators)) == ["D()", "D(0)", "D(0, 0)", "D(1)", "D(1, 1)", "D(2)"]


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    settings = make_settings("burgers", "smoke", optimizer="torch.optim:SGD", learning_rate=1e12, schedule="constant")
    result = train(settings, tmp_path / "run")
    assert result["status"] == "diverged"
    assert result["epochs"] < 20
    assert result["epochs"] <= result["diverged_at"] < 20
    assert math.isfinite(result["l2_relative"])
    assert all(bool(torch.isfinite(value).all()) for value in parameters(tmp_path / "run").values())


def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make_settings("burgers", "smoke")

    def killed(self: Trainer) -> None:
        raise KeyboardInterrupt

    for resume in (True, False):
        folder = tmp_path / str(resume)
        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "save", killed)
            with pytest.raises(KeyboardInterrupt):
                train(settings, folder)
        assert (folder / "config.toml").exists()
        assert train(settings, folder, resume=resume)["status"] == "finished"


def test_a_run_whose_equation_draws_random_numbers_resumes_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "support"))
    settings = make_settings("mischief:random_factor", "smoke", engine="taylor", epochs=20, checkpoint_every=10)
    train(settings, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "epochs", property(lambda self: 10, lambda self, value: None), raising=False)
        train(settings, tmp_path / "cut")
    train(settings, tmp_path / "cut", resume=True)
    assert same(parameters(tmp_path / "whole"), parameters(tmp_path / "cut"))


def test_a_folder_is_trained_in_by_one_process(tmp_path: Path) -> None:
    settings = make_settings("burgers", "smoke")
    train(settings, tmp_path / "run")
    with (
        locked(tmp_path / "run" / LOCK),
        pytest.raises(LockedError, match=r"works in .* already; wait for it or stop it"),
    ):
        train(settings, tmp_path / "run", resume=True)


def test_of_many_calibrations_only_the_best_steps_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dudx.lab.run.records._WHOLE_CURVES", 4)
    train(make_settings("burgers", "smoke", engine="efd", recalibrate=2, epochs=6), tmp_path / "run")
    kept = file_formats.read_json(tmp_path / "run" / "calibrations.json")
    assert [len(search["steps"]) > 1 for search in kept] == [True] * 4 + [False] * 2
    assert all(search["steps"][int(np.argmin(search["rmse"]))] == search["step"] for search in kept)


def test_a_full_disk_is_one_sentence_and_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint.pt"
    file_formats.write_checkpoint(path, {"epoch": 1})

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(file_formats.StorageError, match="No space left on device; the previous file is unchanged"):
        file_formats.write_checkpoint(path, {"epoch": 2})
    monkeypatch.undo()
    assert file_formats.read_checkpoint(path)["epoch"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_checkpoint_never_unpickles_code(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    torch.save({"epoch": os.system}, path)
    with pytest.raises(InputError, match="damaged"):
        file_formats.read_checkpoint(path)


def test_equal_settings_give_equal_parameters_and_another_seed_does_not(tmp_path: Path) -> None:
    for run, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(make_settings("poisson", "smoke", engine="sfd", seed=seed), tmp_path / run)
    assert same(parameters(tmp_path / "a"), parameters(tmp_path / "b"))
    assert not same(parameters(tmp_path / "a"), parameters(tmp_path / "c"))
