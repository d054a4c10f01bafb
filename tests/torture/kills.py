"""Kill trainings and sweeps at random moments, let them go on, and compare the end with that of an undisturbed run.

    python tests/torture/kills.py [trainings [sweeps]]

A training is a fork of this process, so that what takes seconds to import is imported once. A sweep is killed together
with its workers, or one of its workers is, or only the driver.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import torch
from sweeps import assert_same

from dudx.backend.compiler import import_compiler
from dudx.lab import file_formats, make_settings, train
from dudx.lab.run.settings import Settings
from dudx.lab.sweep import grid, run_sweep

_MOST_KILLS_OF_ONE = 60


def forked(work: Callable[[], None]) -> int:
    """Some work in a process of its own group; its id."""
    child = os.fork()
    if child:
        return child
    os.setpgid(0, 0)
    code = 1
    with contextlib.suppress(BaseException):
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        work()
        code = 0
    os._exit(code)


def wait(child: int, seconds: float) -> int | None:
    """The exit code of a child, None if it is still at work after some time."""
    deadline = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.002)


def sound(folder: Path) -> None:
    """Whatever moment it was, the folder says what it holds: every file that may be there can be read."""
    for name in ("result.json", "environment.json", "calibrations.json"):
        if (folder / name).exists():
            file_formats.read_json(folder / name)
    if (folder / "checkpoint.pt").exists():
        file_formats.read_checkpoint(folder / "checkpoint.pt")


def kill_training(settings: Settings, folder: Path, whole: float, draw: random.Random, counts: Counter[str]) -> None:
    """Kill a training again and again until it has ended, each time at another moment."""
    for _ in range(_MOST_KILLS_OF_ONE):
        resume = (folder / "config.toml").exists()
        child = forked(lambda resume=resume: train(settings, folder, resume=resume) and None)
        code = wait(child, draw.uniform(0.0, whole))
        if code is None:
            os.kill(child, signal.SIGKILL)
            wait(child, 60)
            counts["kills"] += 1
            if not (folder / "config.toml").exists():
                counts["before anything was written"] += 1
            sound(folder) if folder.exists() else None
        elif code == 0:
            return
        else:
            counts["failed"] += 1
            print(f"a training ended with code {code} in {folder}", file=sys.stderr)
            return
    assert train(settings, folder, resume=(folder / "config.toml").exists())["status"] == "finished"


def trainings(count: int, place: Path, draw: random.Random) -> Counter[str]:
    """Kill trainings of different kinds until there were so many kills."""
    kinds: list[dict[str, Any]] = [
        {"engine": "sfd", "recalibrate": 4, "checkpoint_every": 2},
        {"engine": "ad", "checkpoint_every": 1, "log_every": 1},
        {"engine": "taylor", "optimizer": "soap", "checkpoint_every": 3},
        {"engine": "fd", "lbfgs_epochs": 4, "checkpoint_every": 1},
    ]
    counts: Counter[str] = Counter()
    wholes: list[tuple[Settings, Path, float]] = []
    for number, kind in enumerate(kinds):
        settings = make_settings("burgers", "smoke", epochs=12, **kind)
        began = time.monotonic()
        train(settings, place / f"whole-{number}")
        wholes.append((settings, place / f"whole-{number}", time.monotonic() - began))
    number = 0
    while counts["kills"] < count:
        settings, undisturbed, seconds = wholes[number % len(wholes)]
        folder = place / f"killed-{number}"
        kill_training(settings, folder, seconds, draw, counts)
        counts["runs"] += 1
        counts["losses"] += not _same(folder, undisturbed)
        counts["files left over"] += len(list(folder.glob(".*")))
        shutil.rmtree(folder)
        number += 1
    return counts


def _same(folder: Path, undisturbed: Path) -> bool:
    try:
        assert_same(folder, undisturbed)
    except Exception as error:
        print(f"{folder} is not what it should be: {error!r}", file=sys.stderr)
        return False
    return True


def sweeps(count: int, place: Path, draw: random.Random) -> Counter[str]:
    """Kill a sweep's driver, a worker of it, or all at once; then begin the sweep again."""
    runs = grid("smoke", problem=["burgers"], engine=["sfd", "ad"], seed=[0, 1], checkpoint_every=5, epochs=80)
    counts: Counter[str] = Counter()
    began = time.monotonic()
    assert all(outcome.status == "finished" for outcome in run_sweep(runs, place / "whole", workers=1))
    seconds = time.monotonic() - began
    folder = place / "killed"
    while counts["kills"] < count:
        child = forked(lambda: run_sweep(runs, folder, workers=1) and None)
        code = wait(child, draw.uniform(0.1, 1.0) * seconds)
        if code is None:
            victims = {"driver": [child], "worker": _children(child), "all": [child, *_children(child)]}
            whom = draw.choice(list(victims))
            for victim in victims[whom]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
            counts["kills"] += 1
            counts[f"of {whom}"] += 1
            if wait(child, 300) is None:
                os.kill(child, signal.SIGKILL)
                wait(child, 60)
                counts["hung"] += 1
        else:
            counts["failed"] += code != 0
        if all((folder / run.name / "result.json").exists() for run in runs):
            counts["losses"] += sum(not _same(folder / run.name, place / "whole" / run.name) for run in runs)
            counts["runs"] += len(runs)
            shutil.rmtree(folder)
    if folder.exists():
        outcomes = run_sweep(runs, folder, workers=1)
        counts["runs"] += len(runs)
        counts["failed"] += sum(outcome.status != "finished" for outcome in outcomes)
        counts["losses"] += sum(not _same(folder / run.name, place / "whole" / run.name) for run in runs)
    return counts


def _children(process: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def main() -> None:
    """Print the counts; the exit code is 1 if anything was lost."""
    how_many = [int(word) for word in sys.argv[1:]] + [88, 12][len(sys.argv) - 1 :]
    torch.set_num_threads(1)
    import_compiler()
    draw = random.Random(0)
    lost = 0
    for what, count, torture in (
        ("trainings", how_many[0], trainings),
        ("sweeps", how_many[1], sweeps),
    ):
        if count:
            with tempfile.TemporaryDirectory(prefix="dudx-torture-") as place:
                counts = torture(count, Path(place), draw)
            told = ", ".join(f"{counts[key]} {key}" for key in counts if key != "kills")
            print(f"{what}: {counts['kills']} kills; {told}; {counts['losses']} losses", flush=True)
            lost += counts["losses"] + counts["failed"] + counts["hung"] + counts["files left over"]
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
