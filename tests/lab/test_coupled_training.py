from __future__ import annotations

import copy
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

import dudx
from dudx import CoupledModelError, PerSampleAD
from dudx.errors import InputError
from dudx.lab import file_formats
from dudx.lab.problems import problem
from dudx.lab.run.networks import networks
from dudx.lab.run.settings import make_settings
from dudx.lab.run.trainer import Trainer
from dudx.lab.run.training import train

NETWORKS = ["batchnorm", "attention"]


def make_trainer(network: str, engine: str, **options: object) -> Trainer:
    settings = make_settings("poisson", "smoke", network=network, engine=engine, dtype="float64", **options)
    trainer = Trainer(problem("poisson"), settings, Path())
    trainer.calibrate()
    return trainer


def gradient(trainer: Trainer) -> torch.Tensor:
    parts = trainer.objective.draw(torch.Generator().manual_seed(5))
    trainer.model.zero_grad()
    trainer._gradient(trainer.optimizer, parts)
    return collected(trainer)


def collected(trainer: Trainer) -> torch.Tensor:
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in trainer.parameters])


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("engine", "tolerance"), [("ad", 1e-10), ("taylor", 1e-10), ("fd", 1e-4)])
def test_the_equation_is_that_of_each_sample_alone(network: str, engine: str, tolerance: float) -> None:
    trainer = make_trainer(network, engine, weight_boundary=0.0)
    ours = gradient(trainer)
    equation = trainer.objective.draw(torch.Generator().manual_seed(5))[0]
    trainer.model.zero_grad()
    equation.residual.loss(trainer.model, equation.points, PerSampleAD()).backward()
    truth = collected(trainer)
    assert (ours - truth).abs().max() <= tolerance * truth.abs().max()


@pytest.mark.parametrize("network", NETWORKS)
def test_ignoring_the_influence_gives_another_gradient(network: str) -> None:
    right, wrong = (gradient(make_trainer(network, "ad", coupled=way)) for way in ("isolate", "ignore"))
    assert (right - wrong).abs().max() > 1e-2 * right.abs().max()


def test_a_condition_sees_the_interior_as_its_context() -> None:
    trainer = make_trainer("batchnorm", "ad")
    interior, boundary = trainer.objective.draw(torch.Generator().manual_seed(5))
    views = trainer.views.training([interior.points, boundary.points])
    together = nn.Sequential(*copy.deepcopy(trainer.model))
    hidden = together[1](together[0](torch.cat([interior.points, boundary.points])))
    normal = (hidden - hidden[: len(interior.points)].mean(0)) / (
        hidden[: len(interior.points)].var(0, unbiased=False) + together[2].eps
    ).sqrt()
    expected = together[3:](normal * together[2].weight + together[2].bias)[len(interior.points) :]
    assert torch.allclose(views[1](boundary.points), expected, atol=1e-12)


def test_running_statistics_follow_the_interior_once_a_step() -> None:
    trainer = make_trainer("batchnorm", "taylor")
    plain = copy.deepcopy(trainer.model)
    plain(trainer.objective.draw(torch.Generator().manual_seed(5))[0].points)
    gradient(trainer)
    for ours, expected in zip(trainer.model.buffers(), plain.buffers(), strict=True):
        assert torch.allclose(ours, expected, atol=1e-12)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_fixed_context_makes_one_function_of_all(network: str) -> None:
    trainer = make_trainer(network, "ad", coupled="fixed", calibration_points=32)
    parts = trainer.objective.draw(torch.Generator().manual_seed(5))
    interior, boundary = trainer.views.training([part.points for part in parts])
    x, context = parts[0].points, trainer.calibration_points
    expected = dudx.frozen(copy.deepcopy(trainer.model), context)(x)
    assert torch.allclose(interior(x), expected, atol=1e-12)
    assert torch.allclose(boundary(x), expected, atol=1e-12)
    assert torch.allclose(trainer.views.evaluation()(x), expected, atol=1e-12)


def test_what_a_fixed_context_leaves_behind_is_right_in_evaluation_mode() -> None:
    trainer = make_trainer("batchnorm", "ad", coupled="fixed")
    x = trainer.calibration_points
    expected = trainer.model.train()(x)
    trainer.evaluation.predict(x.numpy())
    assert torch.allclose(trainer.model.eval()(x), expected, atol=1e-12)


def test_running_statistics_follow_each_batch_once() -> None:
    trainer = make_trainer("batchnorm", "ad", coupled="running")
    layer = trainer.model[2]
    parts = trainer.objective.draw(torch.Generator().manual_seed(5))
    points = [part.points for part in parts]
    trainer.views.training(points)
    followed = layer.running_mean.clone()
    model = trainer.views.training(points)[0]
    assert torch.equal(layer.running_mean, followed)
    assert followed.abs().max() > 0
    assert not dudx.coupled(model, points[0])
    trainer.views.training([point + 0.1 for point in points])
    assert not torch.equal(layer.running_mean, followed)


def test_attention_has_no_running_statistics() -> None:
    with pytest.raises(InputError, match="no batch norm"):
        make_trainer("attention", "ad", coupled="running")


@pytest.mark.parametrize(
    ("network", "way"),
    [*((network, way) for network in NETWORKS for way in ("isolate", "fixed")), ("batchnorm", "running")],
)
def test_a_run_of_a_coupled_network_resumes_bit_for_bit(network: str, way: str, tmp_path: Path) -> None:
    settings = make_settings("poisson", "smoke", network=network, engine="sfd", epochs=12, resample=3, coupled=way)
    whole, half = tmp_path / "whole", tmp_path / "half"

    def copied() -> None:
        if file_formats.read_checkpoint(whole / "checkpoint.pt")["loop"]["epoch"] == 5:
            shutil.copytree(whole, half)  # as a kill would have left it

    assert train(settings, whole, saved=copied)["status"] == "finished"
    assert train(settings, half, resume=True)["status"] == "finished"
    first, second = (file_formats.read_checkpoint(folder / "checkpoint.pt")["model"] for folder in (whole, half))
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_the_prediction_of_an_attention_network_does_not_depend_on_the_slices() -> None:
    trainer = make_trainer("attention", "ad")
    points = torch.rand(50, 2, dtype=torch.float64).numpy()
    together = trainer.evaluation.predict(points)
    apart = [trainer.evaluation.predict(points[i : i + 1]) for i in range(len(points))]
    assert abs(together[:, 0] - [row[0, 0] for row in apart]).max() < 1e-12


def test_an_engine_that_needs_no_isolation_gets_the_network_itself() -> None:
    trainer = make_trainer("batchnorm", "per-sample")
    assert trainer.views.training([torch.rand(4, 2), torch.rand(4, 2)]) == [trainer.model] * 2


def test_slices_of_a_coupled_batch_are_not_taken() -> None:
    trainer = make_trainer("batchnorm", "ad", chunk=7)
    assert torch.equal(gradient(trainer), gradient(make_trainer("batchnorm", "ad", chunk="whole")))
    parts = trainer.objective.draw(trainer.generator)
    with pytest.raises(CoupledModelError):
        trainer.objective.gradient([trainer.model] * len(parts), parts, trainer.engine)


def test_the_spread_of_batch_norm_is_that_of_its_norm() -> None:
    plain, wide = (networks()["batchnorm"](2, width=64, spread=spread) for spread in (0.0, 3.0))
    x = torch.randn(500, 2)
    before, after = (nn.Sequential(*list(network.children())[:3])(x).detach() for network in (plain, wide))
    assert before.std().item() == pytest.approx(1.0, rel=0.05)
    assert (after - after.mean(0)).std().item() == pytest.approx(3.0, rel=0.05)
    assert after.mean(0).std().item() > 1.0
