"""Record the error against the CPU seconds of training; evaluations of the error are not counted."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np


class Stopwatch:
    """A stopwatch that the script starts after its imports; the driver sets the output file.

    Args:
        every: CPU seconds between evaluations of the error.
    """

    def __init__(self, every: float = 1.0):
        arrays = np.load(os.environ["REFERENCE"])
        self.points, self.values = arrays["points"], arrays["values"]
        self.out, self.cap = Path(os.environ["OUT"]), float(os.environ["CAP"])
        self.every, self.curve = every, [[0.0, float("nan")]]
        self.looking = 0.0
        self.start = time.process_time()

    @property
    def seconds(self) -> float:
        """Return CPU seconds of all threads since the start, without evaluations of the error."""
        return time.process_time() - self.start - self.looking

    def look(self, predict: Callable[[np.ndarray], np.ndarray], now: bool = False) -> bool:
        """Record the error if it is due; return True when the time is over."""
        seconds = self.seconds
        if now or seconds - self.curve[-1][0] >= self.every:
            began = time.process_time()
            found = np.asarray(predict(self.points), dtype=np.float64).reshape(self.values.shape)
            error = float(np.linalg.norm(found - self.values) / np.linalg.norm(self.values))
            self.curve.append([seconds, error])
            self._save()
            self.looking += time.process_time() - began
        return seconds >= self.cap

    def write(self, predict: Callable[[np.ndarray], np.ndarray]) -> None:
        """Record the last error and the end of the run."""
        self.look(predict, now=True)
        self._unfinished.replace(self.out)

    @property
    def _unfinished(self) -> Path:
        """Write the record of a running or stopped run."""
        return self.out.with_suffix(".unfinished")

    def _save(self) -> None:
        temporary = self.out.with_suffix(".temporary")
        temporary.write_text(json.dumps({"cap": self.cap, "curve": self.curve[1:]}), encoding="utf-8")
        temporary.replace(self._unfinished)
