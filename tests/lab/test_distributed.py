"""One run in two processes, on the CPU."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dudx.errors import InputError
from dudx.lab import file_formats, train
from dudx.lab.problems import problem
from dudx.lab.run import distributed
from dudx.lab.run.distributed import first, launched
from dudx.lab.run.settings import Settings, make_settings
from dudx.lab.run.trainer import Trainer

ENGINES = ("ad", "taylor", "fd", "efd", "sfd")
# Rows that two do not divide; double precision, as differences divide rounding by the square of the step.
ODD = {"batch": 65, "boundary_batch": 33, "initial_batch": 31, "dtype": "float64", "threads": 1}

TOGETHER = """
import os, signal, sys, time
import torch
from dudx.errors import InputError
from dudx.lab.run import distributed
from dudx.lab.run import trainer
from dudx.lab.run.ranks import PeerError
sys.path.insert(0, sys.argv[2])
from test_distributed import ENGINES, settings_of, step
trainer.first_phase = lambda *_: (None, None)  # no step is taken here, and torch imports a lot with an optimizer

found = {}
with distributed._group(settings_of("ad"), 60) as ranks:
    second = ranks.rank == 1
    found["same"] = ranks.same(f"value of {ranks.rank}")
    found["any"] = [ranks.any(flag) for flag in (False, second, not second, True)]
    for engine in ENGINES:
        found[engine] = step(engine, ranks)
    for name, options in (("coupled", {"network": "batchnorm"}), ("few", {"initial_batch": 1})):
        try:
            step("ad", ranks, **options)
        except InputError as error:
            found[name] = str(error)
    if second:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        ranks.any(False)
    except PeerError as error:
        found["died"] = str(error)
    found["noticed after"] = time.monotonic() - began
torch.save(found, sys.argv[1])
"""


def settings_of(engine: str, **options: object) -> Settings:
    return make_settings("heat", "smoke", engine=engine, **{**ODD, **options})


def step(engine: str, ranks: object = None, **options: object) -> dict[str, object]:
    """The loss, the gradient and the next random number after two looks at the loss."""
    heat = replace(problem("heat"), solution=None)
    trainer = Trainer(heat, settings_of(engine, **options), Path(), ranks)  # type: ignore[arg-type]
    trainer.calibrate()
    for _ in range(2):
        for parameter in trainer.parameters:
            parameter.grad = None
        parts = trainer.objective.draw(trainer.generator)
        loss, by_name = trainer.ranks.gradient(trainer._share, parts, trainer.parameters, trainer.engine_generator)
    return {
        "loss": float(loss),
        "parts": {name: float(value) for name, value in by_name.items()},
        "gradient": [p.grad.clone() for p in trainer.parameters],
        "next": torch.rand(1, generator=trainer.engine_generator),
    }


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | more


def free_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


def two_processes(*words: str) -> tuple[list[int], str]:
    """The exit codes of two processes that know of each other as those of torchrun do, and what they said."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    processes = [
        subprocess.Popen(
            [sys.executable, *words],
            env=environment(RANK=str(rank), LOCAL_RANK=str(rank), **shared),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [process.communicate(timeout=120)[1] for process in processes]
    return [process.returncode for process in processes], "\n".join(said)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What the first of two processes found; the second kills itself in the end."""
    folder = tmp_path_factory.mktemp("together")
    (folder / "together.py").write_text(TOGETHER)
    codes, said = two_processes(str(folder / "together.py"), str(folder / "found.pt"), str(Path(__file__).parent))
    assert codes == [0, -signal.SIGKILL], said
    return torch.load(folder / "found.pt")


@pytest.mark.parametrize("engine", ENGINES)
def test_the_gradient_of_two_processes_is_that_of_one(engine: str, together: dict) -> None:
    one, two = step(engine), together[engine]
    ours, theirs = (torch.cat([g.flatten() for g in found["gradient"]]) for found in (one, two))
    assert (ours - theirs).norm() <= 1e-6 * ours.norm()
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-6)
    assert two["parts"] == pytest.approx(one["parts"], rel=1e-6)
    assert torch.equal(one["next"], two["next"])


def test_processes_agree(together: dict) -> None:
    assert together["same"] == "value of 0"
    assert together["any"] == [False, True, True, True]


def test_what_cannot_be_shared_out_is_refused(together: dict) -> None:
    assert "influence each other, so a batch cannot be shared out" in together["coupled"]
    assert together["few"] == "The 1 points of 'initial' are too few for 2 processes."


def test_when_one_process_dies_the_other_stops(together: dict) -> None:
    assert together["died"] == "Another process of this run has died or hangs; go on with --resume."
    assert together["noticed after"] < 30


@pytest.mark.slow
def test_torchrun_goes_on_with_a_run_and_ends_where_one_process_does(tmp_path: Path) -> None:
    settings = make_settings("burgers", "smoke", engine="sfd", epochs=55, evaluate_every=55, threads=1)
    train(settings, tmp_path / "one")

    def stop_at_the_first() -> None:
        if file_formats.read_checkpoint(tmp_path / "two" / "checkpoint.pt")["loop"]["epoch"] == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "two", saved=stop_at_the_first)
    arguments = ["-m", "dudx.lab.cli", "train", "burgers", "--resume", "--out", str(tmp_path / "two")]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("relative L2") == 1
    assert done.stderr.count("epoch 55/55") == 1
    one, two = (file_formats.read_checkpoint(tmp_path / run / "checkpoint.pt")["model"] for run in ("one", "two"))
    # Single precision, and differences that multiply rounding by a thousand.
    for name, values in one.items():
        assert (values - two[name]).norm() <= 1e-4 * values.norm()
    assert any(not torch.equal(one[name], two[name]) for name in one)  # it was another computation
    rows = [file_formats.read_table(tmp_path / run / "metrics.csv") for run in ("one", "two")]
    assert [row["epoch"] for row in rows[0]] == [row["epoch"] for row in rows[1]]


@pytest.mark.slow
def test_second_order_by_two_processes_is_that_of_one(tmp_path: Path) -> None:
    options = {
        "engine": "taylor",
        "optimizer": "lm",
        "epochs": 12,
        "evaluate_every": 12,
        "memory": 0.5,
        "weights": "auto",
        **ODD,
    }
    train(make_settings("burgers", "smoke", **options), tmp_path / "one")
    given = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    arguments = ["-m", "dudx.lab.cli", "train", "burgers", "--profile", "smoke", *given, "--out", str(tmp_path / "two")]
    codes, said = two_processes(*arguments)
    assert codes == [0, 0], said
    one, two = (file_formats.read_table(tmp_path / run / "metrics.csv") for run in ("one", "two"))
    for mine, theirs in zip(one, two, strict=True):
        # Sums in another order, whose last digits a dozen steps have multiplied.
        for key in ("loss", "pde", "initial", "boundary"):
            assert float(theirs[key]) == pytest.approx(float(mine[key]), rel=1e-4)
    assert float(one[-1]["loss"]) < 0.5 * float(one[0]["loss"])


def test_a_single_process_is_not_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert (launched(), first()) == (False, True)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert (launched(), first()) == (False, True)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert (launched(), first()) == (True, False)


def test_processes_that_do_not_find_each_other_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(InputError, match=r"do not find each other: .*MASTER_ADDR"):
        distributed.train(settings_of("ad"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
