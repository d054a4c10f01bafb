"""Command lines that must be refused: with one sentence, before anything is made.

Each is written as a line of words; `prepare` makes the files and modules they name in the folder they are called in.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import shlex
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

from dudx.lab import cli

TRAIN = "train poisson --profile smoke --out run"
#: Text that no expected error message contains.
UNEXPECTED = "DUDX_TRACEBACK"

MODULES = {
    "raises": "raise ValueError('the sky fell\\non our heads')",
    "leaves": "import sys\nsys.exit(0)",
    "misspelt": "def broken(:\n    pass",
    "makers": """
import sys
def failing(*arguments, **options):
    raise RuntimeError("no such thing today")
def leaving(*arguments, **options):
    sys.exit(0)
def nothing(*arguments, **options):
    return None
number = 3
""",
    "failing_problem": """
import dataclasses, dudx
from dudx.lab import problem
def residual(u):
    raise RuntimeError("the equation is not known")
def failing():
    found = problem("poisson")
    return dataclasses.replace(found, residual=dudx.Residual(residual, inputs=found.inputs))
""",
}
FILES = {
    "binary.toml": b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe",
    "nul.toml": b"epochs = 3\n\x00\n",
    "number.toml": b"epochs = 3\npoisson = 3\n",
    "list.toml": b"[[poisson]]\nepochs = 3\n",
    "truth.toml": b"width = true\n",
    "huge.toml": b"width = 100000000000000000000000000000\n",
    "words.toml": b"epochs = 'many'\n",
    "not.toml": b"epochs == 3",
    "times.dat": b"% x u @ t=1e u @ t=2\n0 0 0\n",
    "words.dat": b"0.1 0.2 one\n",
    "columns.dat": b"0.1 0.2 1\n0.3 0.4\n",
    "empty.dat": b"",
    "binary.dat": b"\x00\x01\x02\xff\xfe\n",
    "nothing.dat": b"0.1 0.2 NaN\n",
    "file": b"",
}

#: The table of what once ended in a traceback, was accepted, or left a folder: the line, and what the sentence says.
TABLE = {
    "a name of a colon": ("train : --out run", "package.module:name"),
    "a name without a module": ("train :f --out run", "package.module:name"),
    "a name without an attribute": ("train os: --out run", "package.module:name"),
    "a relative name": ("train .os:f --out run", "package.module:name"),
    "an engine of a colon": (f"{TRAIN} --engine :", "package.module:name"),
    "a network without a module": (f"{TRAIN} --network :f", "package.module:name"),
    "an optimizer of a colon": (f"{TRAIN} --optimizer :", "package.module:name"),
    "a seed beyond 64 bits": (f"{TRAIN} --seed 100000000000000000000000", "too large"),
    "a width beyond 64 bits": (f"{TRAIN} --width 100000000000000000000000", "too large"),
    "a width beyond memory": (f"{TRAIN} --width 1000000000000", "GiB"),
    "a depth beyond reason": (f"{TRAIN} --depth 1000000000000", "depth = 1000000000000"),
    "a batch beyond memory": (f"{TRAIN} --batch 1000000000000", "GiB"),
    "a boundary batch beyond memory": (f"{TRAIN} --boundary-batch 1000000000000", "GiB"),
    "calibration points beyond memory": (f"{TRAIN} --calibration-points 1000000000000", "GiB"),
    "candidates beyond reason": (f"{TRAIN} --candidates 1000000000000", "candidates = 1000000000000"),
    "threads beyond reason": (f"{TRAIN} --threads 1000000000", "too many"),
    "a billion seeds": ("sweep poisson --profile smoke --seeds 0-1000000000 --out run", "too many"),
    "a seed beyond 64 bits in a sweep": (
        "sweep poisson --profile smoke --seeds 100000000000000000000000 --out run",
        "too large or too many",
    ),
    "a device without numbers": (f"{TRAIN} --device meta", "holds no numbers"),
    "an unknown device": (f"{TRAIN} --device abacus", "device"),
    "a learning rate beyond the format": (f"{TRAIN} --learning-rate 1e300", "learning_rate = 1e+300"),
    "an optimizer with a closure": (f"{TRAIN} --optimizer torch.optim:LBFGS", "--lbfgs-epochs"),
    "an optimizer that is none": (f"{TRAIN} --optimizer makers:nothing", "is a NoneType"),
    "an optimizer that fails": (f"{TRAIN} --optimizer makers:failing", "no such thing today"),
    "no profile": ("train poisson --profile '' --out run", "no profile named ''"),
    "a binary profile": ("train poisson --profile binary.toml --out run", "'binary.toml' is damaged"),
    "a profile with a NUL": ("train poisson --profile nul.toml --out run", "NUL"),
    "a profile with a number for a table": ("train poisson --profile number.toml --out run", "line 2: poisson = 3"),
    "a profile with a list of tables": ("train poisson --profile list.toml --out run", "poisson"),
    "a profile that is a folder": ("train poisson --profile folder.toml --out run", "cannot be read"),
    "a truth value for a width": ("train poisson --profile truth.toml --out run", "line 1: width = True"),
    "a truth value for a width in a sweep": (
        "sweep poisson --profile smoke --set width=true --out run",
        "a bool is not a number",
    ),
    "an enormous number in a profile": ("train poisson --profile huge.toml --out run", "too large"),
    "an accuracy of 100": (f"{TRAIN} --accuracy 100", "accuracy = 100"),
    "a reference with half a time": (f"{TRAIN} --reference times.dat", "has a time"),
    "a binary reference": (f"{TRAIN} --reference binary.dat", "binary.dat"),
    "no engines": ("sweep poisson --profile smoke --engines '' --out run", "no engine named ''"),
    "an empty engine among others": ("sweep poisson --profile smoke --engines ad,,fd --out run", "no engine named ''"),
    "no folder": ("train poisson --profile smoke --out ''", "needs a name"),
    "no folder for a sweep": ("sweep poisson --profile smoke --out ''", "needs a name"),
    "a sweep of a problem that fails": ("sweep makers:failing --profile smoke --out run", "no such thing today"),
    "a sweep beyond memory": ("sweep poisson --profile smoke --set batch=1000000000000 --out run", "GiB"),
    "a module that fails": ("train raises:problem --out run", "ValueError: the sky fell"),
    "a module that leaves": ("train leaves:problem --out run", "sys.exit(0)"),
    "a module that is misspelt": ("train misspelt:problem --out run", "SyntaxError"),
    "a problem that fails": ("train makers:failing --out run", "no such thing today"),
    "a problem that leaves": ("train makers:leaving --out run", "sys.exit(0)"),
    "a problem that is none": ("train makers:nothing --out run", "NoneType"),
    "a problem that is a number": ("train makers:number --out run", "cannot be made"),
    "a network that fails": (f"{TRAIN} --network makers:failing", "no such thing today"),
    "a network that leaves": (f"{TRAIN} --network makers:leaving", "sys.exit(0)"),
    "a network that is none": (f"{TRAIN} --network makers:nothing", "NoneType"),
    "an engine that is none": (f"{TRAIN} --engine makers:number", "must be a class"),
    "an equation that fails": ("train failing_problem:failing --profile smoke --out run", "is not known"),
    "steps the wrong way round": (
        f"{TRAIN} --engine fd --calibration-smallest 0.5 --calibration-largest 0.1",
        "0.1",
    ),
    "an option that is not there": (f"{TRAIN} --wdith 3", "--wdith"),
    "a word for a number": (f"{TRAIN} --epochs many", "--epochs"),
    "no command": ("tarin poisson", "tarin"),
    "no arguments": ("train", "Missing argument"),
    "a folder with a file in its way": ("train poisson --profile smoke --out file/run", "Cannot make the folder"),
    "pictures of nothing": ("plot nowhere", "There is no run"),
    "brackets in a path": ("plot [/bold]", "There is no run in '[/bold]'"),
}


def generated(count: int, seed: int = 0) -> list[str]:
    """Further bad lines, at random: a setting with a value that is none, in a command that takes it."""
    draw = random.Random(seed)
    whole = "width depth epochs batch boundary-batch initial-batch recalibrate calibration-points candidates accuracy"
    whole += " evaluate-every log-every checkpoint-every threads"
    real = "learning-rate weight-boundary weight-initial weight-data calibration-smallest calibration-largest"
    names = "engine network optimizer dtype coupled schedule device profile"
    bad_whole = ["0", "-1", "1.5", "many", "''", "nan", "inf", "1e3", "0x10", "1_0_", "100000000000000000000000", "--"]
    bad_real = ["-1", "many", "''", "nan", "inf", "-inf", "1e999", "0,1", "1e", "--"]
    bad_name = [
        "''",
        ":",
        ":f",
        "a:",
        "..:f",
        "no.such:thing",
        "raises:x",
        "leaves:x",
        "misspelt:x",
        "'\\x07'",
        "os:sep",
    ]
    bad_name += ["'[/bold]'", "'$\\foo'", "'a b'", "../x", "'mlp '", "тест", "none.toml", "binary.toml"]
    lines: dict[str, None] = {}

    def add(line: str) -> None:
        lines[line] = None  # each once

    commands = ["train poisson", "train burgers", "train heat"]
    while len(lines) < count:
        kind = draw.choice(["whole", "real", "name", "set", "seeds", "problem", "folder"])
        command = draw.choice(commands)
        if kind == "whole":
            add(f"{command} --profile smoke --out run --{draw.choice(whole.split())} {draw.choice(bad_whole)}")
        elif kind == "real":
            add(f"{command} --profile smoke --out run --{draw.choice(real.split())} {draw.choice(bad_real)}")
        elif kind == "name":
            add(f"{command} --profile smoke --out run --{draw.choice(names.split())} {draw.choice(bad_name)}")
        elif kind == "set":
            key = draw.choice([*whole.replace("-", "_").split(), "nothing", "problem", "", "engine", "seed"])
            value = draw.choice(["", "=", "=-1", "=many", "=true", "=0", "=1,many", "=[]", "={}", "==3", "=1e999"])
            add(f"sweep poisson --profile smoke --out run --set '{key}{value}'")
        elif kind == "seeds":
            value = draw.choice(["''", "a", "1-", "-1", "3-1", "0,0", "1.5", "0-99999999999", "0--1", "0;1", "١-٣x"])
            add(f"sweep poisson --profile smoke --out run --seeds {value}")
        elif kind == "problem":
            place = draw.choice(["train {} --out run", "sweep {} --out run"])
            add(place.format(draw.choice([word for word in bad_name if word != "os:sep"])))
        else:
            where = draw.choice(["''", "' '", "file/x", "/proc/x", "/dev/null/x", "file"])
            add(f"{draw.choice([*commands, 'sweep poisson'])} --profile smoke --out {where}")
    return list(lines)


def prepare(folder: Path) -> None:
    """Make what the lines name."""
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (folder / "folder.toml").mkdir()


def _there(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if "__pycache__" not in path.parts}


@dataclass(frozen=True)
class Answer:
    """Exit code and output of a command."""

    code: object
    said: str
    left: set[str]

    def fault(self, sentence: str = "") -> str | None:
        """Return why the answer to a bad command is not acceptable, or None."""
        lines = [line for line in self.said.splitlines() if line.strip()]
        if self.code in (0, None):
            return f"accepted, with exit code {self.code}: {self.said!r}"
        if "Traceback" in self.said or (UNEXPECTED in self.said and "is not known" not in self.said):
            return f"a traceback: {self.said!r}"
        if len(lines) != 1 or not lines[0].startswith("dudx: ") or sentence not in lines[0]:
            return f"not one sentence with {sentence!r}: {self.said!r}"
        if self.left:
            return f"left behind {self.left}"
        return None


def answer(line: str, folder: Path) -> Answer:
    """Call the program in this process, in a folder that was prepared."""
    before, where, said = _there(folder), os.getcwd(), io.StringIO()
    code: object = 0
    arguments, path = sys.argv, list(sys.path)
    os.chdir(folder)
    sys.argv = ["dudx", *shlex.split(line)]
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cli.main()
    except SystemExit as stop:
        code = stop.code
    except Exception as error:
        code, _ = None, said.write(f"Traceback of {error!r}")
    finally:
        os.chdir(where)
        sys.argv, sys.path[:] = arguments, path
    return Answer(code or 0, said.getvalue(), _there(folder) - before)
