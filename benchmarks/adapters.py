"""Time scripts of DeepXDE and PINA before and after one added line: CPU ms per training step, single precision.

    cd benchmarks && ../.venv/bin/python -m peers.environments deepxde pina
    cd benchmarks && ../.venv/bin/python -m adapters [--seconds 0.5] [--rounds 5] [--out ../out/adapters.json]

All scripts run on one thread and train in turn. A round is as many steps as the plain script makes in some seconds; the
first round is a warm-up. The ratio is the median over the rounds. "At most" is the ratio for an equation without
derivatives: the overhead of the package and a forward pass remain.

The losses before and after are compared after ten steps and at the end. They differ by rounding, which training
amplifies. DeepXDE's steps are those of its training loop; PINA's are epochs of its trainer, with the overhead of
Lightning.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from peers.environments import ROOT, python, reason_missing


def main() -> None:
    """Measure all cases and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", nargs="+", choices=["deepxde", "pina"], default=["deepxde", "pina"])
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "adapters.json")
    chosen = parser.parse_args()
    found = []
    print("| | before, ms | after, ms | ratio | at most | losses apart at first | and at the end |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for peer in chosen.peers:
        if reason_missing(peer) is not None:
            sys.exit(f"{peer}: {reason_missing(peer)}")
        command = [python(peer), "-m", f"peers.adapted_{peer}", str(chosen.seconds), str(chosen.rounds)]
        told = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")]), "OMP_NUM_THREADS": "1"}
        worker = subprocess.Popen(command, env=os.environ | told, stdout=subprocess.PIPE, text=True)
        assert worker.stdout is not None
        for line in worker.stdout:
            if line.startswith("REPORT "):
                row = json.loads(line.removeprefix("REPORT "))
                found.append({"peer": peer, **row})
                times = f"{1e3 * row['before']:.1f} | {1e3 * row['after']:.1f} | {row['ratio']:.2f}"
                times += f" | {row['before'] / row['least']:.2f}"
                apart = f"{row['first losses apart']:.1e} | {row['last losses apart']:.1e}, {row['steps']} steps"
                print(f"| {peer}: {row['case']} | {times} | {apart} |", flush=True)
        if worker.wait():
            sys.exit(f"{peer} failed.")
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(found, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
