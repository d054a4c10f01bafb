"""Time the first call of a compiled residual, with an empty cache and again in a new process.

python benchmarks/compile_time.py [--as-torch-does]

Each measurement is a process of its own with torch's cache in a new folder; the second process finds the cache filled.
Torch keeps one precompiled header per machine, so a warm-up process runs first. CPU seconds include the C++ compiler;
on a busy machine they are more reliable than wall time. `--as-torch-does` lets torch build one C++ program per loop, as
it does by default.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

WIDTH, DEPTH, BATCH = 64, 4, 1024


def first_call(width: int) -> dict[str, float]:
    """Return the seconds of the first loss and its gradient in this process."""
    import torch
    from any_network import network

    import dudx

    torch.set_num_threads(1)
    burgers = dudx.Residual(lambda u: u.t + u * u.x - 0.01 * u.xx, inputs=("x", "t"), compile=True)
    model, x = network(2, width, DEPTH), torch.rand(BATCH, 2)
    clock, before = time.perf_counter(), _cpu_seconds()
    burgers.loss(model, x, dudx.Taylor()).backward()
    assert burgers.compile_seconds > 0, "nothing was compiled"
    return {"clock": time.perf_counter() - clock, "cpu": _cpu_seconds() - before}


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and the child processes it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(of.ru_utime + of.ru_stime for of in used)


def measured(cache: str, width: int, as_torch_does: bool) -> dict[str, float]:
    """Measure the first call in a new process; programs are built one by one, so that their time is counted."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    command = [sys.executable, __file__, "--child", str(width), *["--as-torch-does"] * as_torch_does]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Measure both and print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--as-torch-does", action="store_true")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        if options.as_torch_does:
            from dudx.network import compiled_graph

            compiled_graph.as_one_program = dict  # type: ignore[assignment]
        print(json.dumps(first_call(options.child)))
        return
    with tempfile.TemporaryDirectory() as apart:
        measured(apart, 8, options.as_torch_does)
    with tempfile.TemporaryDirectory() as cache:
        for name in ("cold", "warm"):
            found = measured(cache, WIDTH, options.as_torch_does)
            print(f"{name}: {found['clock']:.1f} s wall time, {found['cpu']:.1f} s of CPU time", flush=True)


if __name__ == "__main__":
    main()
