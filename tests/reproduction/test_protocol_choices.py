"""The choices that the paper's protocol leaves open: how boundary terms are averaged, and the initialisation."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import dudx
from dudx.errors import InputError
from dudx.lab.problems import problem
from dudx.lab.run.objective import Objective
from dudx.lab.run.pieces import FACTOR, Pieces
from dudx.lab.run.settings import make_settings
from dudx.lab.run.trainer import Trainer
from dudx.lab.run.training import train
from reproduction.experiments import experiments
from reproduction.profile import load

EXPERIMENTS = experiments()


def trainer(name: str, **options: object) -> Trainer:
    return Trainer(problem(name), make_settings(name, "smoke", dtype="float64", **options), Path())


@pytest.mark.parametrize(("name", "count"), [("poisson", 5), ("heat", 18)])
def test_the_pieces_are_the_rectangle_and_each_circle(name: str, count: int) -> None:
    pieces = Pieces(problem(name).domain)
    sample = problem(name).domain.sample_boundary(20_000, torch.Generator().manual_seed(0))
    numbers = pieces.numbers(sample.points)
    assert numbers.unique().tolist() == list(range(count))
    # The domain counts the four sides of the rectangle, which come first.
    assert torch.equal(numbers, (sample.piece - 3).clamp(min=0))


def test_points_inside_the_domain_are_on_no_piece() -> None:
    pieces = Pieces(problem("poisson").domain)
    assert pieces.numbers(torch.zeros(3, 2)).tolist() == [5, 5, 5]


@pytest.mark.parametrize("name", ["poisson", "heat"])
@pytest.mark.parametrize("compile", [False, True])
def test_by_pieces_the_loss_is_the_sum_of_their_means(name: str, compile: bool) -> None:
    made = trainer(name, boundary_mean="pieces", boundary_batch=400, compile=compile, engine="taylor")
    part = next(part for part in made.batches.at(0)[0] if part.name == "boundary")
    condition = next(condition for condition in problem(name).conditions if condition.name == "boundary")
    data = {key: values for key, values in part.data.items() if key != FACTOR}
    numbers = Pieces(problem(name).domain).numbers(part.points)
    with torch.no_grad():
        squares = condition.residual(made.model, part.points, dudx.AD(), **data).square()
    expected = sum(squares[numbers == number].mean() for number in numbers.unique())
    # In slices, too, whose shares of the pieces differ.
    for chunk in (400, 150):
        found = part.backward(made.model, made.engine, chunk)
        assert math.isclose(float(found), float(expected), rel_tol=1e-9)


def test_one_mean_over_the_boundary_is_the_default() -> None:
    objective = Objective(problem("poisson"), make_settings("poisson", "smoke"))
    assert objective.pieces is None
    assert [part.data.keys() for part in objective.draw(torch.Generator())] == [set(), {"g"}]


def test_where_the_boundary_has_one_piece_nothing_changes() -> None:
    parts = [trainer("burgers", boundary_mean=mean).batches.at(0)[0] for mean in ("whole", "pieces")]
    assert [part.data.keys() for part in parts[0]] == [part.data.keys() for part in parts[1]]


class StoppedError(Exception):
    """Ends a run in the middle."""


@pytest.mark.parametrize("engine", ["sfd", "ad"])
def test_a_run_by_pieces_is_resumed_bit_for_bit(engine: str, tmp_path: Path) -> None:
    chosen = {"engine": engine, "boundary_mean": "pieces", "initialisation": "torch", "resample": 3}
    settings = make_settings("poisson", "smoke", **chosen)
    undisturbed = train(settings, tmp_path / "whole")
    saves = iter(range(100))

    def stop() -> None:
        if next(saves) == 2:  # at epoch 10 of 20
            raise StoppedError

    with pytest.raises(StoppedError):
        train(settings, tmp_path / "parts", saved=stop)
    resumed = train(settings, tmp_path / "parts", resume=True)
    assert resumed["l2_relative"] == undisturbed["l2_relative"]
    assert resumed["loss"] == undisturbed["loss"]


def test_torchs_initialisation_is_that_of_plain_linear_layers() -> None:
    made = trainer("poisson", initialisation="torch", seed=3).model
    torch.manual_seed(3)
    layers = [torch.nn.Linear(2, 16), torch.nn.Linear(16, 16), torch.nn.Linear(16, 1)]
    ours = [layer for layer in made.modules() if isinstance(layer, torch.nn.Linear)]
    for layer, own in zip(layers, ours, strict=True):
        assert torch.equal(layer.weight.double(), own.weight)
        assert torch.equal(layer.bias.double(), own.bias)
    default = trainer("poisson").model
    assert all(not layer.bias.any() for layer in default.modules() if isinstance(layer, torch.nn.Linear))


def test_a_result_states_the_choices(tmp_path: Path) -> None:
    result = train(make_settings("poisson", "smoke", boundary_mean="pieces", epochs=2), tmp_path / "run")
    assert result["boundary_mean"] == "pieces"
    assert result["initialisation"] == "xavier"
    assert result["boundary_batch"] == 32
    assert 'boundary_mean = "pieces"' in (tmp_path / "run" / "config.toml").read_text()


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"boundary_mean": "circles"}, "The option boundary_mean = 'circles' is not right: .*'whole' or 'pieces'"),
        ({"initialisation": "he"}, "The option initialisation = 'he' is not right: .*'xavier' or 'torch'"),
        ({"boundary_batch": 0}, "The option boundary_batch = 0 is not right: .*greater than 0"),
    ],
)
def test_what_is_none_of_the_choices_is_refused(option: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_settings("poisson", "smoke", **option)


def test_a_network_with_an_initialisation_of_its_own_says_so() -> None:
    with pytest.raises(InputError, match="initialisation = 'torch' is for the network 'mlp'"):
        trainer("poisson", network="attention", initialisation="torch")


def test_the_profiles_of_the_protocol_name_their_runs() -> None:
    runs = {run.name: run.settings for run in EXPERIMENTS["table-poisson"].runs(load("protocol"))}
    assert sorted({settings.seed for settings in runs.values()}) == list(range(10, 20))
    assert {(s.boundary_mean, s.initialisation, s.boundary_batch) for s in runs.values()} == {
        ("pieces", "xavier", 2048)
    }
    slow = [run.settings for run in EXPERIMENTS["table-poisson"].runs(load("protocol-slow"))]
    assert {(s.boundary_mean, s.initialisation) for s in slow} == {("whole", "torch")}
    intervals = EXPERIMENTS["fig-5"].runs(load("protocol"))
    assert {r.settings.calibration_points for r in intervals if r.settings.recalibrate == 1} == {64}
    # The runs of the published interval are those of the tables.
    poisson = [r.name for r in intervals if r.settings.problem == "poisson" and r.settings.recalibrate == 4000]
    assert len(poisson) == 6
    assert runs.keys() >= set(poisson)
