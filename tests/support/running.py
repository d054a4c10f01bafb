"""Runs a script in a peer's environment and collects what it reports, or skips where the environment is not there."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@functools.cache
def reports(peer: str) -> dict[str, dict[str, Any]]:
    """By case, what the peer's script found; it runs once for all tests."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from peers import environments
    finally:
        sys.path.pop(0)
    reason = environments.reason_missing(peer)
    if reason is not None:
        pytest.skip(f"{peer}: {reason}; make test-adapters builds it and runs these tests")
    done = subprocess.run(
        [environments.python(peer), f"{peer}_check.py"],
        cwd=ROOT / "tests" / "adapters",
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.removeprefix("REPORT ") for line in done.stdout.splitlines() if line.startswith("REPORT ")]
    found = {report["case"]: report for report in map(json.loads, lines)}
    assert done.returncode == 0, done.stderr[-3000:]
    return found
