"""An addition to the laboratory is one new file in a folder."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dudx import engines as engines_folder
from dudx.engines import engines
from dudx.errors import InputError
from dudx.lab import make_settings, train
from dudx.lab.problems import problem, problems
from dudx.lab.run.networks import networks
from dudx.lab.run.optimizers import optimizers
from dudx.lab.run.trainer import Trainer
from dudx.lab.sampling import samplings
from dudx.lab.sweep.sweep_run import execute
from reproduction import runner
from reproduction.experiments import experiments
from reproduction.profile import load
from reproduction.result_store import ResultStore

Add = Callable[[str, str, str], None]

PROBLEM = """
import numpy as np
from dudx import Residual
from dudx.lab.problems.problem import Condition, Problem
from dudx.lab.problems.geometry import Interval

DOMAIN = Interval(0.0, 1.0)

class Solution:
    points = np.linspace(0, 1, 11)[:, None]
    values = points**2
    def __call__(self, points):
        return points**2

def ends(n, generator, device, dtype):
    points = DOMAIN.sample_boundary(n, generator, device, dtype).points
    return points, {"g": points**2}

def parabola():
    boundary = Condition("boundary", "boundary", Residual(lambda u, g: u - g, ("x",), data=("g",)), ends)
    equation = Residual(lambda u: u.xx - 2.0, ("x",))
    defaults = {"weight_boundary": 77.0, "width": 9}
    names = {"name": "parabola", "title": "A parabola"}
    return Problem(equation, ("x",), DOMAIN, [boundary], solution=Solution, defaults=defaults, **names)

PROBLEM = parabola
"""
NETWORK = """
from torch import nn

class Shallow(nn.Sequential):
    def __init__(self, inputs, outputs=1, width=8, depth=1, bounds=None):
        super().__init__(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs))
        self.asked_for = (width, depth)

NETWORK = Shallow
"""
OPTIMIZER = """
import torch

def descent(parameters, lr):
    return torch.optim.SGD(parameters, lr=lr)

OPTIMIZER = descent
"""
SAMPLING = """
from dudx.lab.sampling import Sampling

class Left(Sampling):
    def interior(self, n, place):
        points = place.uniform(8 * n)
        return points[points[:, 0] < 0][:n]

SAMPLING = Left
"""
ENGINE = """
from dataclasses import dataclass
from dudx.engines.autodiff import AD
from dudx.engines.interface import Engine

@dataclass(frozen=True)
class Another(Engine):
    name = "another"

    def derivatives(self, model, x, request):
        return AD().derivatives(model, x, request)
"""
EXPERIMENT = """
from reproduction.experiments.accuracy import experiment

EXPERIMENT = experiment("parabola", 50, "Not in the paper.")
"""


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Add]:
    """Put a file into a folder of the package, as far as the package can tell."""
    registries: list[Any] = [engines, problems, networks, optimizers, experiments, samplings]
    before = set(sys.modules)

    def added(package: str, name: str, text: str) -> None:
        folder = tmp_path / package
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(text)
        module = importlib.import_module(package)
        monkeypatch.setattr(module, "__path__", [*module.__path__, str(folder)])
        for registry in registries:
            registry.cache_clear()

    yield added
    for name in set(sys.modules) - before:
        if name.rpartition(".")[2] in ("parabola", "shallow", "descent", "another", "table_parabola", "left"):
            del sys.modules[name]
    monkeypatch.undo()
    for registry in registries:
        registry.cache_clear()


def test_a_problem_with_defaults_of_its_own(add: Add, tmp_path: Path) -> None:
    add("dudx.lab.problems", "parabola", PROBLEM)
    assert problem("parabola").title == "A parabola"
    settings = make_settings("parabola", "smoke")
    assert (settings.weight_boundary, settings.width) == (77.0, 9)  # the profile's general width is another
    assert make_settings("parabola", "smoke", width=5).width == 5
    (tmp_path / "mine.toml").write_text("batch = 16\nwidth = 4\n[parabola]\nwidth = 6\n")
    assert make_settings("parabola", str(tmp_path / "mine.toml")).width == 6
    assert train(settings, tmp_path / "run")["status"] == "finished"


def test_a_default_that_is_not_right_is_the_problem_s_fault(add: Add) -> None:
    add("dudx.lab.problems", "parabola", PROBLEM.replace('"width": 9', '"widht": 9'))
    with pytest.raises(InputError, match=r"the defaults of the problem parabola.*widht = 9 is not right: there is no"):
        make_settings("parabola", "smoke")


def test_a_network_an_optimizer_and_an_engine(add: Add, tmp_path: Path) -> None:
    add("dudx.lab.run.networks", "shallow", NETWORK)
    add("dudx.lab.run.optimizers", "descent", OPTIMIZER)
    add(engines_folder.__name__, "another", ENGINE)
    chosen = {"network": "shallow", "optimizer": "descent", "engine": "another", "learning_rate": 1e-6}
    assert train(make_settings("poisson", "smoke", epochs=2, **chosen), tmp_path / "run")["status"] == "finished"
    made = networks()["shallow"](2, width=3, depth=7)
    assert made.asked_for == (3, 7)


def test_a_way_to_draw_points(add: Add) -> None:
    add("dudx.lab.sampling", "left", SAMPLING)
    settings = make_settings("poisson", "smoke", sampling="0.5 left + 0.5 uniform")
    points = Trainer(problem("poisson"), settings, Path()).batches.at(0)[0][0].points
    assert len(points) == settings.batch
    assert (points[: settings.batch // 2, 0] < 0).all()
    assert (points[settings.batch // 2 :, 0] > 0).any()


def test_an_experiment_of_a_new_problem_with_a_new_engine(add: Add, tmp_path: Path) -> None:
    add("dudx.lab.problems", "parabola", PROBLEM)
    add(engines_folder.__name__, "another", ENGINE)
    add("reproduction.experiments", "table_parabola", EXPERIMENT)
    experiment = experiments()["table-parabola"]
    assert list(experiments())[-1] == "table-parabola"
    profile = load("smoke")
    runs = experiment.runs(profile)
    assert [(run.settings.engine, run.settings.seed) for run in runs] == [
        (engine, seed) for engine in ("ad", "fd", "taylor", "another") for seed in range(2)
    ]
    outcomes = [execute(run, tmp_path / "runs" / run.name) for run in runs[-2:]]
    store = ResultStore(tmp_path)
    store.add_runs((each, tmp_path / "runs" / each.name) for each in outcomes)
    results = runner.results_of(experiment, profile, store, runner.known_runs(runs, store), {})
    runner.draw(experiment, results, tmp_path)
    text = (tmp_path / "tables" / "table-parabola.md").read_text()
    assert "A parabola: mean ± standard deviation" in text
    assert "| another |" in text
    assert experiment.claims(results) == []


def test_the_name_of_an_experiment_is_that_of_its_file() -> None:
    assert all(name == experiment.name for name, experiment in experiments().items())
    assert list(experiments())[:5] == ["fig-1", "table-1", "fig-2", "fig-3", "table-poisson"]
    assert list(problems()) == ["burgers", "heat", "poisson"]
