"""First steps of a user with only the files of a release: run by `make dist`, outside of the repository.

    python tests/support/installed.py dist

In a new environment in a temporary folder, the wheel is installed, README's first example is run, and `dudx train
poisson` for a few seconds. The source distribution must have the files of the repository and no others; all of its
tests are collected, and those of the project are run, in the unpacked folder.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: What the tests need, as in .github/workflows/tests.yml.
EXTRAS = ".[lab,mesh,references,tests]"


def run(folder: Path, *command: str) -> str:
    """Run a program in a folder, with nothing that leads back to the repository, and return its output."""
    print("$", " ".join([Path(command[0]).name, *command[1:]])[:100], flush=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def compare_with_repository(folder: Path) -> None:
    """Exit if the unpacked source distribution has other files than the repository, where this is one."""
    if not (ROOT / ".git").exists():
        return
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = set(listed.stdout.strip("\0").split("\0"))
    shipped = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {"PKG-INFO"}
    if missing := sorted(tracked - shipped):
        sys.exit(f"The source distribution lacks files of the repository: {', '.join(missing)}")
    if strange := sorted(shipped - tracked):
        sys.exit(f"The source distribution has files that are not in the repository: {', '.join(strange)}")


def try_wheel(wheel: Path, python: str, folder: Path) -> None:
    """Install the wheel, run the first example of the README, and train for a few seconds."""
    example = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[0]
    constraint = ["--constraint", str(ROOT / "constraints.txt")]
    run(folder, python, "-m", "pip", "install", "--quiet", *constraint, f"{wheel.resolve()}[lab]")
    imported = run(folder, python, "-c", "import dudx; print(dudx.__file__)").strip()
    if not Path(imported).is_relative_to(folder.resolve()):
        sys.exit(f"another dudx was imported: {imported}")
    print(run(folder, python, "-c", example), end="")
    program = str(Path(python).with_name("dudx"))
    print(run(folder, program, "--version"), end="")
    run(folder, program, "train", "poisson", "--seconds", "5", "--out", "run")
    result = json.loads((folder / "run" / "result.json").read_text(encoding="utf-8"))
    print(f"dudx train poisson: {result['status']}, relative L2 {100 * result['l2_relative']:.2f} %")


def try_source(unpacked: Path, python: str) -> None:
    """Collect all tests of the unpacked source distribution, and run those of the project."""
    constraint = ["--constraint", str(unpacked / "constraints.txt")]
    run(unpacked, python, "-m", "pip", "install", "--quiet", *constraint, "--editable", EXTRAS)
    print(run(unpacked, python, "-m", "pytest", "-q", "--collect-only").splitlines()[-1])
    print(run(unpacked, python, "-m", "pytest", "-q", "-n", "auto", "-m", "not slow", "tests/project").splitlines()[-1])


def main(dist: Path) -> None:
    """Try the wheel and the source distribution in a new environment."""
    (wheel,), (source,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(source) as archive:
            archive.extractall(folder / "source", filter="data")
        (unpacked,) = (folder / "source").iterdir()
        compare_with_repository(unpacked)
        venv.create(folder / "venv", with_pip=True)
        python = str(folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python")
        try_wheel(wheel, python, folder)
        try_source(unpacked, python)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
