"""Count the Python calls into dudx of one eager Burgers residual, and the changes between its files.

python benchmarks/calls.py
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

import dudx

_HERE = str(Path(dudx.__file__).parent)


def counted(call: Any) -> tuple[int, int]:
    """Return the number of calls of functions in dudx and of changes from one of its files to another."""
    files: list[str] = []

    def seen(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_HERE):
            files.append(frame.f_code.co_filename)

    sys.setprofile(seen)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(files), sum(a != b for a, b in itertools.pairwise(files))


def main() -> None:
    """Print one row per engine."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
    x = torch.rand(256, 2)
    burgers = dudx.Residual(lambda u: u.t + u * u.x - 0.01 * u.xx, ("x", "t"))
    print(f"{'engine':8} {'calls':>6} {'changes of file':>16}")
    for engine in (dudx.FD(1e-2), dudx.AD(), dudx.Taylor()):
        for _ in range(10):  # warm-up: record, plan and check, as in the middle of training
            burgers(model, x, engine)
        calls, changes = counted(lambda engine=engine: burgers(model, x, engine))
        print(f"{type(engine).__name__:8} {calls:6} {changes:16}")


if __name__ == "__main__":
    main()
