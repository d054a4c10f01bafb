"""Solve one problem with DeepXDE, PINA and dudx: lines, CPU seconds to 1 %, and the final error.

    cd benchmarks && ../.venv/bin/python -m peers.environments deepxde pina
    cd benchmarks && ../.venv/bin/python -m side_by_side.run [--cap 900] [--seeds 3] [--out FOLDER] [--shown]

Each script runs in its own environment, on one thread, with the settings of its package's documentation: 5000
steps of Adam and then L-BFGS for DeepXDE and PINA (a 4×50 tanh network in single precision, 1200 points inside and 480
on the boundary, conditions weighted by 100), the profile `cpu` for dudx. Existing runs are not
repeated, so the command can be interrupted and restarted. Comments, empty lines and lines that measure are not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
from peers.environments import ROOT, python, reason_missing

from dudx.errors import percent
from dudx.lab import reference

HERE = Path(__file__).parent
#: The environment and the script's options.
WAYS = {
    "DeepXDE": ("deepxde", "poisson_deepxde.py", ()),
    "DeepXDE with one line of dudx": ("deepxde", "poisson_deepxde.py", ("--accelerated",)),
    "PINA": ("pina", "poisson_pina.py", ()),
    "PINA with one line of dudx": ("pina", "poisson_pina.py", ("--accelerated",)),
    "dudx": (None, "poisson_dudx.py", ()),
}


def lines(script: str) -> int:
    """Return the number of lines of a script that a user writes."""
    code = (HERE / script).read_text(encoding="utf-8").splitlines()[1:]
    return sum(1 for line in code if line.strip() and not line.strip().startswith("#") and "# measuring" not in line)


def _file(out: Path, way: str, seed: int) -> Path:
    return out / f"{way.replace(' ', '-')}-seed{seed}.json"


def measure(way: str, seed: int, cap: float, out: Path) -> None:
    """Run a script, which writes its curve."""
    peer, script, options = WAYS[way]
    file = _file(out, way, seed)
    if file.exists():
        return
    if peer is not None and reason_missing(peer) is not None:
        print(f"{way}: {reason_missing(peer)}")
        return
    solution = reference("poisson")
    arrays = out / "reference.npz"
    np.savez(arrays, points=solution.points, values=solution.values)
    told = {"REFERENCE": arrays, "OUT": file, "CAP": cap, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": 1}
    told |= {"DDE_BACKEND": "pytorch"}
    environment = os.environ | {name: str(value) for name, value in told.items()}
    with (out / f"{file.stem}.log").open("w", encoding="utf-8") as log:
        command = [python(peer), script, str(seed), *options]
        done = subprocess.run(command, cwd=HERE, env=environment, stdout=log, stderr=log, check=False)
    print(f"{way}, seed {seed}: {'done' if done.returncode == 0 else f'failed, see {log.name}'}", flush=True)


def seconds_to(error: float, curve: list[list[float]]) -> float | None:
    """Return when the error first fell to a limit."""
    return next((seconds for seconds, found in curve if found is not None and found <= error), None)


def show(seeds: int, out: Path) -> None:
    """Print the table and write it to a file."""
    rows = ["| | lines | CPU seconds to 1 % | error in the end | CPU seconds in all |", "|---|---:|---:|---:|---:|"]
    for way, (_, script, options) in WAYS.items():
        files = [_file(out, way, seed) for seed in range(seeds)]
        curves = [json.loads(file.read_text(encoding="utf-8"))["curve"] for file in files if file.exists()]
        if not curves:
            continue
        reached = [seconds_to(0.01, curve) for curve in curves]
        times = sorted(t for t in reached if t is not None)
        first = f"{statistics.median(times):.0f}" if times else "not reached"
        first += f" ({len(times)} of {len(curves)} seeds)" if times and len(times) < len(curves) else ""
        last = statistics.median(curve[-1][1] for curve in curves)
        spent = statistics.median(curve[-1][0] for curve in curves)
        rows.append(f"| {way} | {lines(script) + 2 * len(options)} | {first} | {percent(last)} | {spent:.0f} |")
    print("\n".join(rows))
    (out / "table.md").write_text("\n".join(rows) + "\n", encoding="utf-8")


def main() -> None:
    """Run missing cases, then print all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cap", type=float, default=900.0, help="CPU seconds of a run")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "side_by_side")
    parser.add_argument("--shown", action="store_true", help="run nothing; print existing results")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    for seed in range(chosen.seeds):
        for way in chosen.ways:
            if not chosen.shown:
                measure(way, seed, chosen.cap, chosen.out.resolve())
    show(chosen.seeds, chosen.out)


if __name__ == "__main__":
    sys.exit(main())
