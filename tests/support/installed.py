"""First steps of a user with only the wheel: run by `make dist`, outside of the repository.

    python tests/support/installed.py dist

In a new environment in a temporary folder, the wheel is installed, README's first example is run, and `dudx train
poisson` for a few seconds.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    example = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        # The environment of this process must not lead back to the repository.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}

        def run(*command: str) -> str:
            print("$", " ".join([Path(command[0]).name, *command[1:]])[:100], flush=True)
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"failed:\n{done.stdout}\n{done.stderr}")
            return done.stdout

        python = str(programs / "python")
        constraint = ["--constraint", str(ROOT / "constraints.txt")]
        run(python, "-m", "pip", "install", "--quiet", *constraint, f"{wheel.resolve()}[lab]")
        place = run(python, "-c", "import dudx; print(dudx.__file__)")
        if not Path(place.strip()).is_relative_to(folder.resolve()):
            sys.exit(f"another dudx was imported: {place}")
        print(run(python, "-c", example), end="")
        print(run(str(programs / "dudx"), "--version"), end="")
        run(str(programs / "dudx"), "train", "poisson", "--seconds", "5", "--out", "run")
        result = json.loads((folder / "run" / "result.json").read_text(encoding="utf-8"))
        print(f"dudx train poisson: {result['status']}, relative L2 {100 * result['l2_relative']:.2f} %")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
