"""Levenberg-Marquardt in the laboratory, and what comes with it: weights, stopping, budgets."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from resuming import assert_resumed_bit_for_bit, killed_at

import dudx
from dudx.errors import InputError
from dudx.lab import file_formats, make_settings, train
from dudx.lab.problems import problem
from dudx.lab.run.least_squares import LeastSquaresPhase
from dudx.lab.run.settings import Settings
from dudx.lab.run.stopping import Stopping
from dudx.lab.run.trainer import Trainer

SMALL = {"width": 8, "depth": 2, "batch": 64, "boundary_batch": 24, "initial_batch": 24, "evaluate_every": 5}


def small(name: str = "burgers", **options: object) -> Settings:
    chosen = {"optimizer": "lm", "dtype": "float64", **SMALL, **options}
    return make_settings(name, "smoke", **chosen)


@pytest.mark.parametrize("engine", ["ad", "fd", "efd", "sfd", "taylor", "per-sample"])
def test_every_engine_lowers_the_loss_by_terms(engine: str, tmp_path: Path) -> None:
    result = train(small(engine=engine, epochs=8, resample=100), tmp_path / "run")
    rows = file_formats.read_table(tmp_path / "run" / "metrics.csv")
    assert (result["status"], result["stopped"]) == ("finished", "epochs")
    assert result["loss"] < 0.3 * float(rows[0]["loss"])
    assert float(rows[-1]["damping"]) > 0


def test_the_loss_and_its_parts_are_those_of_a_gradient_step() -> None:
    trainers = [Trainer(problem("heat"), small("heat", optimizer=name), Path()) for name in ("lm", "adam")]
    (loss, parts), (other, others) = (t.first.step(t.batches.at(0)[0]) for t in trainers)
    assert math.isclose(loss, other, rel_tol=1e-10)
    assert parts.keys() == others.keys() == {"pde", "initial", "boundary"}
    for name in parts:
        assert math.isclose(float(parts[name]), float(others[name]), rel_tol=1e-10)


def test_a_part_without_weight_is_watched_and_does_not_count() -> None:
    trainer = Trainer(problem("burgers"), small(weight_initial=0.0), Path())
    loss, parts = trainer.first.step(trainer.batches.at(0)[0])
    assert float(parts["initial"]) > 0
    assert math.isclose(loss, float(parts["pde"]) + 10 * float(parts["boundary"]), rel_tol=1e-10)


@pytest.mark.parametrize(
    "options",
    [
        {"engine": "sfd", "resample": 7, "memory": 0.5, "sampling": "0.5 uniform + 0.5 adaptive"},
        {"engine": "sfd", "dtype": "float32", "weights": "auto", "settled": 50},
        {"engine": "taylor", "resample": 4, "sampling": "0.4 sobol + 0.3 early + 0.3 near-boundary"},
        {"engine": "fd", "optimizer": "adam", "weights": "auto", "resample": 3, "lbfgs_epochs": 6},
    ],
)
def test_killed_and_resumed_ends_bit_for_bit(
    options: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = small(**options)
    train(settings, tmp_path / "whole")
    killed_at(13, settings, tmp_path / "cut", monkeypatch)
    train(settings, tmp_path / "cut", resume=True)
    assert_resumed_bit_for_bit(tmp_path / "whole", tmp_path / "cut")


def test_steps_are_calibrated_when_the_damping_is_in_another_regime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dampings = [1e-3, 1.1e-4, 9e-5, 8e-4, 9.1e-4, 9.1e-4, 9.1e-4, 8e-3, 9.2e-3, 1.0]
    now = [0]
    monkeypatch.setattr(LeastSquaresPhase, "damping", property(lambda phase: dampings[now[0]]))
    original = Trainer._epoch

    def scripted(self: Trainer) -> None:
        now[0] = self.epoch
        original(self)

    monkeypatch.setattr(Trainer, "_epoch", scripted)

    def calibrated_at(folder: Path) -> list[int]:
        return sorted({search["epoch"] for search in json.loads((folder / "calibrations.json").read_text())})

    settings = small(engine="fd", epochs=9, recalibrate=7)
    train(settings, tmp_path / "whole")
    assert calibrated_at(tmp_path / "whole") == [0, 2, 4, 7]
    settings = small(engine="fd", epochs=9, recalibrate=100)
    train(settings, tmp_path / "rarely")
    assert calibrated_at(tmp_path / "rarely") == [0, 2, 4, 8]
    train(small(engine="fd", epochs=9, recalibrate=7, recalibrate_only=True), tmp_path / "only")
    assert calibrated_at(tmp_path / "only") == [0, 7]
    killed_at(7, settings, tmp_path / "cut", monkeypatch)
    train(settings, tmp_path / "cut", resume=True)
    assert_resumed_bit_for_bit(tmp_path / "rarely", tmp_path / "cut")
    train(small(engine="taylor", epochs=9), tmp_path / "exact")
    assert calibrated_at(tmp_path / "exact") == []


def test_unknown_constants_move_with_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    settings = small("own_problem:viscosity", engine="taylor", epochs=10)
    trainer = Trainer(problem(settings.problem), settings, tmp_path / "run")
    before = trainer.records.unknowns
    result = train(settings, tmp_path / "run")
    assert all(math.isfinite(value) and value != before[name] for name, value in result["unknowns"].items())


def test_what_is_known_of_noise_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    settings = small("own_problem:viscosity", engine="taylor", epochs=9, weights="auto")
    assert Trainer(problem(settings.problem), settings, tmp_path / "made").objective.kept_back
    train(settings, tmp_path / "whole")
    killed_at(7, settings, tmp_path / "cut", monkeypatch)
    train(settings, tmp_path / "cut", resume=True)
    assert_resumed_bit_for_bit(tmp_path / "whole", tmp_path / "cut")


def test_a_loss_that_is_not_finite_ends_as_diverged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Trainer._epoch

    def spoiled(self: Trainer) -> None:
        if self.epoch == 7:
            with torch.no_grad():
                self.parameters[0].fill_(math.nan)
        original(self)

    monkeypatch.setattr(Trainer, "_epoch", spoiled)
    result = train(small(sampling="adaptive"), tmp_path / "run")
    assert (result["status"], result["diverged_at"], result["epochs"]) == ("diverged", 7, 5)


def test_a_network_whose_samples_influence_each_other_is_isolated(tmp_path: Path) -> None:
    result = train(small("poisson", network="batchnorm", engine="taylor", epochs=3), tmp_path / "run")
    assert result["status"] == "finished"


# -- stopping ----------------------------------------------------------------------------------------------------------


def test_a_loss_has_settled_when_its_median_hardly_falls() -> None:
    watch = Stopping(5, None)
    for loss in [2.0**-n for n in range(10)]:
        watch.add(loss)
        assert watch.reason is None
    for _ in range(5):
        watch.add(2.0**-9)
    assert watch.reason is None  # the five before were still falling
    for _ in range(4):
        watch.add(2.0**-9)
    watch.add(1.0)  # one outlier does not matter
    assert watch.reason == "settled"
    again = Stopping(5, None)
    again.load_state_dict(watch.state_dict())
    assert again.reason == "settled"


def test_a_run_that_has_settled_says_so(tmp_path: Path) -> None:
    options = {"optimizer": "torch.optim:SGD", "learning_rate": 1e-12, "epochs": 100, "settled": 5, "engine": "ad"}
    result = train(small("poisson", **options), tmp_path / "run")
    assert (result["status"], result["stopped"], result["epochs"]) == ("finished", "settled", 10)
    assert result["l2_relative"] is not None


def test_a_budget_of_seconds_ends_a_run(tmp_path: Path) -> None:
    result = train(small(engine="taylor", epochs=10**6, seconds=0.2), tmp_path / "run")
    assert result["stopped"] == "seconds"
    assert 0.2 <= result["cpu_seconds"] < 20
    last = file_formats.read_table(tmp_path / "run" / "metrics.csv")[-1]
    assert float(last["cpu_seconds"]) == pytest.approx(result["cpu_seconds"], abs=2e-3)
    assert last["l2_relative"]


def test_a_run_estimates_its_error_if_asked(tmp_path: Path) -> None:
    result = train(small(engine="taylor", epochs=3, estimate=True), tmp_path / "run")
    assert 0 < result["estimate"]["relative_l2"] < math.inf
    assert json.loads((tmp_path / "run" / "result.json").read_text())["estimate"] == result["estimate"]
    assert "estimate" not in train(small(engine="taylor", epochs=3), tmp_path / "without")
    coupled = small("poisson", network="batchnorm", optimizer="adam", epochs=2, estimate=True)
    assert train(coupled, tmp_path / "coupled")["estimate"] is None


# -- weights -----------------------------------------------------------------------------------------------------------


def test_weights_found_automatically_are_the_ratio_of_how_much_the_parts_move() -> None:
    trainer = Trainer(problem("poisson"), small("poisson", optimizer="adam", weights="auto"), Path())
    parts, _ = trainer.batches.at(0)
    trainer.weighting.update(parts, trainer.views.training, trainer.engine)
    moves = []
    for part in parts:
        _, rows = dudx.optim.jacobian(part.residual, trainer.model, part.points, dudx.Taylor(), **part.data)
        moves.append(float(rows.square().sum(dim=1).mean()))
    assert trainer.objective.weights["pde"] == 1.0
    assert trainer.objective.weights["boundary"] == pytest.approx(moves[0] / moves[1], rel=1e-8)
    assert trainer.batches.reweighed()[1].weight == trainer.objective.weights["boundary"]


def test_a_ramp_takes_points_from_the_first_moments() -> None:
    plain, ramped = (
        Trainer(problem("heat"), small("heat", ramp=ramp, batch=4000, boundary_batch=4000), Path()).batches.at(0)[0]
        for ramp in (0.0, 0.5)
    )
    for before, after in zip(plain, ramped, strict=True):
        assert before.points.shape == after.points.shape
        if before.name == "initial":
            assert torch.equal(before.points[:, -1], after.points[:, -1])
            continue
        t = before.points[:, -1]
        kept = (t / (t + 0.5)).square()
        # The share of points before t = 1, by weights on points that are not thinned; 4000 draws are good to 1 %.
        expected = float((kept * (t < 1)).sum() / kept.sum())
        assert float((after.points[:, -1] < 1).double().mean()) == pytest.approx(expected, abs=0.03)
        assert abs(float((t < 1).double().mean()) - expected) > 0.1
    with pytest.raises(InputError, match="has no time"):
        Trainer(problem("poisson"), small("poisson", ramp=0.5), Path())


def test_a_spread_makes_the_first_layer_bend_everywhere() -> None:
    plain, spread = (Trainer(problem("poisson"), small("poisson", spread=s), Path()).model for s in (0.0, 3.0))
    first, second = ([m for m in model.modules() if isinstance(m, torch.nn.Linear)] for model in (plain, spread))
    assert float(second[0].weight.abs().mean()) > 2 * float(first[0].weight.abs().mean())
    assert float(second[0].bias.abs().max()) > 1
    assert float(first[0].bias.abs().max()) == 0
    assert torch.equal(first[1].weight, second[1].weight)  # the others are as they were


# -- profiles ----------------------------------------------------------------------------------------------------------


def test_a_profile_may_be_based_on_another(tmp_path: Path) -> None:
    base, own = make_settings("heat", "cpu"), make_settings("heat", "precise")
    assert own.width > base.width
    assert own.model_dump(exclude={"width", "batch"}) == base.model_dump(exclude={"width", "batch"})
    profile = tmp_path / "mine.toml"
    profile.write_text('base = "cpu"\nwidth = 7\n[heat]\nramp = 0.5\n')
    assert (make_settings("burgers", str(profile)).width, make_settings("burgers", str(profile)).ramp) == (7, 0.0)
    assert make_settings("heat", str(profile)).ramp == 0.5
    for text, said in (
        ("base = 3", "not the name of a profile"),
        ('base = "precise"', "has a base of its own"),
        ('base = "cpuu"', "cpu"),
    ):
        profile.write_text(text)
        with pytest.raises(InputError, match=said):
            make_settings("burgers", str(profile))


@pytest.mark.parametrize("name", ["poisson", "burgers", "heat"])
def test_the_cpu_profile_is_second_order_in_double_precision(name: str) -> None:
    settings = make_settings(name)
    assert (settings.optimizer, settings.dtype, settings.threads) == ("lm", "float64", 1)
    assert make_settings(name, "paper").settled == 0
    assert make_settings(name, "paper").optimizer == "adam"
    Trainer(problem(name), settings, Path())


def test_a_setting_that_does_not_fit_is_a_sentence() -> None:
    with pytest.raises(InputError, match="did you mean 'adaptive'"):
        Trainer(problem("poisson"), small("poisson", sampling="adaptiv"), Path())
    with pytest.raises(InputError, match="memory = 1"):
        small(memory=1.0)


def test_a_run_ends_with_the_last_step_of_its_points(tmp_path: Path) -> None:
    result = train(small(epochs=200, resample=7, seconds=1e-6), tmp_path / "run")
    assert (result["stopped"], result["epochs"]) == ("seconds", 7)


def test_the_benchmark_runs_and_does_not_run_again(script: Callable[..., str], tmp_path: Path) -> None:
    benchmark = Path(__file__).parents[2] / "benchmarks" / "time_to_accuracy.py"
    options = "--smoke --seeds 1 --problems poisson --optimizers lm adam --engines taylor fd --out"
    times = []
    for _ in range(2):
        assert "poisson: relative L2" in script(benchmark, *options.split(), tmp_path)
        times.append({file: file.stat().st_mtime_ns for file in tmp_path.glob("runs.*")})
    assert times[0] == times[1]
    assert len((tmp_path / "runs.csv").read_text(encoding="utf-8").splitlines()) == 1 + 4
    assert (tmp_path / "time_to_accuracy.png").exists()
