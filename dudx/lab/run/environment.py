"""The environment of a run: versions, threads, commit and seed."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dudx


def environment(seed: int) -> dict[str, Any]:
    """Return the facts stored with every run."""
    return {
        "dudx": dudx.__version__,
        "commit": commit(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "seed": seed,
    }


def commit() -> str | None:
    """Return the commit of this source; None for an installed package."""
    file = Path(__file__)
    git = ["git", "-C", str(file.parent)]
    try:
        # An environment may lie in another project's repository, whose commit is not that of this file.
        subprocess.run([*git, "ls-files", "--error-unmatch", file.name], capture_output=True, timeout=5, check=True)
        done = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def processor() -> str:
    """Return the name of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
