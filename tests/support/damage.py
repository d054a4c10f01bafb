"""Damaged files of a run, and what is done with them: each must be refused with one sentence that names it.

Whether damage may go unnoticed is decided by what comes of it: a command that accepts a damaged file must give just
what it gives with the sound one.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dudx.errors import DudxError
from dudx.lab import file_formats, make_settings, plots, train
from dudx.lab.run.settings import Settings
from dudx.lab.run.trainer import Trainer
from dudx.lab.sweep.sweep_run import Run, outcome

#: The files that something is read from.
READ = ("checkpoint.pt", "metrics.csv", "calibrations.json", "result.json", "config.toml", "prediction.npz")


class Stopped(BaseException):
    """Nothing expects it, so that a folder is left as a kill leaves it."""


def make_runs(place: Path) -> tuple[Settings, Path, Path]:
    """A run that ended, and one of the same settings that was killed on its way."""
    settings = make_settings("burgers", "smoke", engine="sfd", epochs=8, checkpoint_every=4, recalibrate=3, log_every=1)
    settings = settings.model_copy(update={"threads": 1})
    train(settings, place / "ended")
    original = Trainer._epoch

    def deadly(self: Trainer) -> None:
        if self.epoch == 6:
            raise Stopped
        original(self)

    Trainer._epoch = deadly  # type: ignore[method-assign]
    try:
        train(settings, place / "killed")
    except Stopped:
        pass
    finally:
        Trainer._epoch = original  # type: ignore[method-assign]
    return settings, place / "ended", place / "killed"


# -- kinds of damage -------------------------------------------------------------------------------------------------

Damage = Callable[[bytes, random.Random], bytes]


def flipped(content: bytes, draw: random.Random) -> bytes:
    """Return the content with one bit flipped."""
    at = draw.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :]


def truncated(content: bytes, draw: random.Random) -> bytes:
    """The end is missing."""
    return content[: draw.randrange(1, len(content))]


def truncated_at_a_line(content: bytes, draw: random.Random) -> bytes:
    """Whole lines are missing at the end."""
    lines = content.splitlines(keepends=True)
    return b"".join(lines[: draw.randrange(len(lines))])


def emptied(content: bytes, draw: random.Random) -> bytes:
    """Nothing is left."""
    return b""


def zeroed(content: bytes, draw: random.Random) -> bytes:
    """A block of zeros, as a disk leaves it."""
    at = draw.randrange(len(content))
    size = min(512, len(content) - at)
    return content[:at] + b"\0" * size + content[at + size :]


def not_utf8(content: bytes, draw: random.Random) -> bytes:
    """Bytes that are no text."""
    at = draw.randrange(len(content))
    return content[:at] + b"\xff\xfe" + content[at:]


def swapped(content: bytes, draw: random.Random) -> bytes:
    """Two blocks in each other's place."""
    size = max(1, len(content) // 4)
    return content[size : 2 * size] + content[:size] + content[2 * size :]


def other_json(content: bytes, draw: random.Random) -> bytes:
    """Right JSON of the wrong kind."""
    kinds = [b"{}", b"null", b"5", b"[]", b'"text"', b"[1, 2]", b"[{}]", b'{"status": 3}', b"NaN", b"[" * 100_000]
    return draw.choice([kind for kind in kinds if kind.strip() != content.strip()])


def noise(content: bytes, draw: random.Random) -> bytes:
    """Something else altogether."""
    return draw.randbytes(len(content))


KINDS: tuple[Damage, ...] = (
    *(flipped, flipped, flipped, truncated, truncated_at_a_line, emptied, zeroed, not_utf8, swapped, other_json, noise),
)


# -- checkpoints that are sound, but not of this run's kind -----------------------------------------------------------


def odd_checkpoints(path: Path) -> dict[str, bytes]:
    """The checkpoint with something of another type or value in it, by what it is."""
    made = {}
    changes: list[tuple[tuple[Any, ...], Any]] = [
        *[((part,), 5) for part in ("loop", "model", "optimizer", "schedule", "random", "records", "problem")],
        *[((part,), None) for part in ("loop", "model", "optimizer", "schedule", "random", "records")],
        *[(("loop", "epoch"), value) for value in ("four", 4.5, -1, 10**9, True, None, [4])],
        *[(("loop", "seconds"), value) for value in ("long", float("nan"))],
        (("loop", "engine"), 5),
        (("optimizer", "param_groups"), "none"),
        (("optimizer", "param_groups", 0, "lr"), "fast"),
        (("optimizer", "state"), "none"),
        (("random", "points"), "no tensor"),
        (("random", "points"), torch.zeros(3)),
        (("records", "table"), 5),
        (("records", "table", "rows"), "many"),
        (("records", "table", "bytes"), 10**9),
        (("records", "calibrations"), "many"),
        (("records", "calibrations"), 10**9),
        (("records", "recent"), 5),
        (("records", "recent", "loss"), "small"),
        (("model", "0.weight"), "no tensor"),
        (("model", "0.weight"), torch.zeros(2, 3)),
    ]
    for place, value in changes:
        content = file_formats.read_checkpoint(path)
        inner: Any = content
        for key in place[:-1]:
            inner = inner[key]
        if isinstance(inner, dict) and place[-1] not in inner:
            continue
        inner[place[-1]] = value
        buffer = io.BytesIO()
        torch.save(content, buffer)
        made[f"{'.'.join(map(str, place))} = {value!r:.30}"] = buffer.getvalue()
    for name, whole in {"a list": [1, 2], "a number": 5, "a tensor": torch.zeros(3), "nothing": {}}.items():
        buffer = io.BytesIO()
        torch.save(whole, buffer)
        made[name] = buffer.getvalue()
    return made


# -- what is done with the files -------------------------------------------------------------------------------------


def _resumed(folder: Path, settings: Settings) -> Any:
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        result = train(settings, folder, resume=True)
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in file_formats.read_table(folder / "metrics.csv")]
    model = file_formats.read_checkpoint(folder / "checkpoint.pt")["model"]
    calibrations = json.loads((folder / "calibrations.json").read_text())
    numbers = {key: value for key, value in result.items() if key not in ("seconds", "cpu_seconds", "compile_seconds")}
    return numbers, rows, calibrations, {key: value.tolist() for key, value in model.items()}


def _drawn(folder: Path, settings: Settings) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {path.name: path.read_bytes() for path in plots.plot_run(folder)}


def _looked_at(folder: Path, settings: Settings) -> Any:
    found = outcome(Run("run", settings), folder)
    return found.status, found.result


#: Uses of files of a killed and of a finished run.
USES: dict[str, tuple[str, Callable[[Path, Settings], Any], tuple[str, ...]]] = {
    "resume": ("killed", _resumed, ("checkpoint.pt", "metrics.csv", "calibrations.json", "config.toml", "SHA256SUMS")),
    "resume what ended": ("ended", _resumed, ("checkpoint.pt", "metrics.csv", "calibrations.json", "config.toml")),
    "plot": ("ended", _drawn, ("metrics.csv", "calibrations.json", "config.toml", "prediction.npz", "SHA256SUMS")),
    "plot what was killed": ("killed", _drawn, ("checkpoint.pt", "calibrations.json", "config.toml", "SHA256SUMS")),
    "sweep": ("ended", _looked_at, ("result.json", "config.toml", "SHA256SUMS")),
}


@dataclass(frozen=True)
class Verdict:
    """Outcome of the use of a damaged file."""

    #: refused, harmless (the result is that of the sound file), accepted, or traceback.
    end: str
    said: str = ""

    @property
    def fault(self) -> bool:
        return self.end in ("accepted", "traceback")


class Workshop:
    """Runs to damage, and what is right for each use of them."""

    def __init__(self, place: Path):
        self.place = place
        self.settings, ended, killed = make_runs(place)
        self.runs = {"ended": ended, "killed": killed}
        self.right = {use: self._used(use, None, b"") for use in USES}

    def _used(self, use: str, name: str | None, content: bytes) -> Any:
        which, work, _ = USES[use]
        folder = self.place / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.runs[which], folder)
        if name is not None:
            (folder / name).write_bytes(content)
        return work(folder, self.settings)

    def verdict(self, use: str, name: str, content: bytes) -> Verdict:
        """Use a run with a damaged file."""
        try:
            found = self._used(use, name, content)
        except DudxError as error:
            sentence = str(error)
            named = name in sentence or "checkpoint" in sentence
            return Verdict("refused" if named and "\n" not in sentence else "traceback", sentence)
        except Exception as error:
            return Verdict("traceback", repr(error))
        return Verdict("harmless" if found == self.right[use] else "accepted")

    def random_cases(self, count: int, seed: int) -> list[tuple[str, str, str, bytes]]:
        """Uses, names and contents of damaged files, and how they were damaged."""
        draw = random.Random(seed)
        places = [(use, name) for use, (_, _, names) in USES.items() for name in names]
        cases = []
        for number in range(count):
            use, name = places[number % len(places)]
            sound = (self.runs[USES[use][0]] / name).read_bytes()
            kinds = [kind for kind in KINDS if kind is not other_json or name.endswith(".json")]
            kind = draw.choice(kinds)
            content = kind(sound, draw)
            if content != sound:
                cases.append((use, name, kind.__name__, content))
        return cases

    def odd_cases(self) -> list[tuple[str, str, str, bytes]]:
        """Checkpoints that are sound, but hold something odd."""
        found = odd_checkpoints(self.runs["killed"] / "checkpoint.pt")
        return [("resume", "checkpoint.pt", what, content) for what, content in found.items()]


def told(case: tuple[str, str, str, bytes], verdict: Verdict) -> str:
    """A case and what came of it, in a line."""
    return f"{case[0]} with {case[1]}, {case[2]}: {verdict.end} {verdict.said}"


def report(cases: list[tuple[str, str, str, bytes]], workshop: Workshop) -> dict[str, int]:
    """Try the cases, print those that went wrong, and count."""
    ends = dict.fromkeys(("refused", "harmless", "accepted", "traceback"), 0)
    for case in cases:
        verdict = workshop.verdict(case[0], case[1], case[3])
        ends[verdict.end] += 1
        if verdict.fault:
            print(told(case, verdict), file=sys.stderr)
    return ends
