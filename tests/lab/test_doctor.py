from __future__ import annotations

import sys
from pathlib import Path

import pytest
from commands import call
from typer.testing import CliRunner

from dudx.lab import cli
from dudx.lab.cli import app

PATIENTS = """
import torch
from torch import nn

made = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).double()
number = 3

def batch_norm():
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))

def random():
    print("started from", torch.rand(1).item())
    return batch_norm()

def raising():
    raise ValueError("no weights in this folder.\\nLook elsewhere.")

def needing(width):
    return nn.Linear(2, width)

def table():
    return {"net": batch_norm()}

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
    def forward(self, x):
        return self.layer(x), x

class Fourier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
    def forward(self, x):
        return self.layer(torch.cat([x.sin(), x.cos()], 1))

class Picky(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
    def forward(self, x):
        raise KeyError("temperature")

class Plain(nn.Module):
    def forward(self, x):
        return x.sin().sum(1, keepdim=True)
"""


@pytest.fixture
def patients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"patients_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(PATIENTS)
    (tmp_path / f"{name}_broken.py").write_text("def make(:\n")
    (tmp_path / f"{name}_failing.py").write_text("import no_such_thing_at_all\n")
    monkeypatch.chdir(tmp_path)
    return name


def ask(*arguments: str) -> tuple[int, str]:
    shown = CliRunner().invoke(app, ["doctor", *arguments])
    return shown.exit_code, shown.stdout


def test_doctor_tells_coupled_from_independent_by_its_exit_code(patients: str) -> None:
    code, said = ask(f"{patients}:batch_norm")
    assert code == 4
    assert "Sequential in training mode: samples influence each other (64 points, 2 inputs, float32)." in said
    assert "BatchNorm1d" in said
    assert "dudx.isolate(model, x)" in said
    code, said = ask(f"{patients}:batch_norm", "--eval", "--points", "5")
    assert code == 0
    assert "in evaluation mode: samples are independent (5 points, 2 inputs, float32)." in said


def test_doctor_takes_a_module_that_is_there_and_one_of_our_own(patients: str) -> None:
    code, said = ask(f"{patients}:made")
    assert code == 0
    assert "(64 points, 3 inputs, float64)" in said
    code, said = ask("attention", "--inputs", "3", "--points", "16")
    assert code == 4
    assert "MultiheadAttention" in said
    code, said = ask(f"{patients}:Plain", "--inputs", "2", "--low", "0", "--high", "3")
    assert code == 0
    code, said = ask(f"{patients}:Fourier", "--inputs", "2")
    assert code == 0


def test_doctor_says_the_same_every_time(patients: str) -> None:
    first, second, other = (ask(f"{patients}:random", "--seed", seed)[1] for seed in ("1", "1", "2"))
    assert first == second
    assert first != other


def test_doctor_refuses_in_one_sentence(patients: str, monkeypatch: pytest.MonkeyPatch) -> None:
    good = f"{patients}:batch_norm"
    cases = {
        "no such package": (["no.such.package:make"], "cannot be imported: No module named 'no'"),
        "no such module": (["torch.nowhere:make"], "cannot be imported: No module named 'torch.nowhere'"),
        "module that does not parse": ([f"{patients}_broken:make"], "SyntaxError"),
        "module that cannot import": ([f"{patients}_failing:make"], "No module named 'no_such_thing_at_all'"),
        "missing attribute": ([f"{patients}:missing"], "has nothing named 'missing' to use as network"),
        "mistyped name": (["batchnrom"], "did you mean 'batchnorm'"),
        "factory raises": ([f"{patients}:raising"], "cannot be made without arguments: ValueError: no weights in"),
        "factory wants arguments": ([f"{patients}:needing"], "TypeError: needing() missing 1 required positional"),
        "factory returns something else": ([f"{patients}:table"], "is a dict; it must be a torch module"),
        "something else": ([f"{patients}:number"], "is a int; it must be a torch module"),
        "two outputs": ([f"{patients}:Pair"], "The model returned a tuple of 2"),
        "wrong guess of the inputs": ([f"{patients}:Fourier"], "If 4 is not its number of inputs, give --inputs."),
        "wrong inputs": ([good, "--inputs", "5"], "The model failed on a batch of shape"),
        "no guess of the inputs": ([f"{patients}:Plain"], "is unknown for a network without Linear layers"),
        "forward raises": ([f"{patients}:Picky"], "failed at 64 points: KeyError: 'temperature'"),
        "no points": ([good, "--points", "0"], "--points must be a whole number, 1 or more; got 0"),
        "no inputs": ([good, "--inputs", "-1"], "--inputs must be a whole number, 1 or more; got -1"),
        "bounds the wrong way round": ([good, "--low", "2"], "--low must be less than --high"),
        "bounds that are no numbers": ([good, "--high", "nan"], "both finite"),
        "negative seed": ([good, "--seed", "-4"], "--seed must be 0 or more; got -4"),
    }
    wrong = []
    for name, (arguments, sentence) in cases.items():
        monkeypatch.setattr(sys, "argv", ["dudx", "doctor", *arguments])
        code, said = call(cli.main)
        if code != 1 or sentence not in said or "\n" in said:
            wrong.append(f"{name}: exit {code}, said {said!r}, expected {sentence!r}")
    assert not wrong, "\n".join(wrong)
