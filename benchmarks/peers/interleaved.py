"""Two scripts in turn, so that whatever else the machine does is shared: CPU seconds a step, and the losses of both."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch


def compared(make: Callable[[str, bool], Any], cases: Sequence[str]) -> None:
    """Print one JSON a case; steps in a round and rounds are given on the command line."""
    torch.set_num_threads(1)
    steps, rounds = int(sys.argv[1]), int(sys.argv[2])
    for case in cases:
        scripts = [make(case, accelerated) for accelerated in (False, True)]
        for script in scripts:
            script.train(3)  # in which recording and compilation happen
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            for script, spent in zip(scripts, times, strict=True):
                began = time.process_time()
                script.train(steps)
                spent.append((time.process_time() - began) / steps)
        before, after = (script.losses() for script in scripts)
        apart = max(abs(a - b) / max(abs(a), abs(b), 1e-30) for a, b in zip(before, after, strict=True))
        plain, fast = (statistics.median(spent) for spent in times)
        ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
        report = {"case": case, "before": plain, "after": fast, "ratio": ratio, "losses apart": apart}
        print("REPORT", json.dumps(report), flush=True)
