"""Run scripts in turn: CPU seconds per step, and the difference of their losses."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

#: Steps after which the losses are first compared.
_FIRST = 10
#: The plain script, the accelerated script, and an equation without derivatives as the lower bound.
WAYS = ("before", "after", "least")


def compared(make: Callable[[str, str], Any], cases: Sequence[str]) -> None:
    """Print one JSON line per case; the seconds of a round and the number of rounds are given on the command line."""
    torch.set_num_threads(1)
    seconds, rounds = float(sys.argv[1]), int(sys.argv[2])
    for case in cases:
        scripts = {way: make(case, way) for way in WAYS}
        for script in scripts.values():
            script.train(_FIRST)  # includes recording and compilation
        at_first = _apart(scripts)
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        steps = max(_FIRST, round(seconds / _seconds(scripts["before"], _FIRST)))
        scripts["after"].train(_FIRST)
        for script in scripts.values():
            script.train(steps)
        for _ in range(rounds):
            for way, script in scripts.items():
                times[way].append(_seconds(script, steps))
        report: dict[str, Any] = {"case": case, **{way: statistics.median(spent) for way, spent in times.items()}}
        report["ratio"] = statistics.median(a / b for a, b in zip(times["before"], times["after"], strict=True))
        report |= {"first losses apart": at_first, "last losses apart": _apart(scripts)}
        report["steps"] = 2 * _FIRST + steps * (rounds + 1)
        print("REPORT", json.dumps(report), flush=True)


def _seconds(script: Any, steps: int) -> float:
    began = time.process_time()
    script.train(steps)
    return (time.process_time() - began) / steps


def _apart(scripts: Mapping[str, Any]) -> float:
    """Return the difference of the losses relative to the larger one."""
    before, after = scripts["before"].losses(), scripts["after"].losses()
    return max(abs(a - b) / max(abs(a), abs(b), 1e-30) for a, b in zip(before, after, strict=True))
