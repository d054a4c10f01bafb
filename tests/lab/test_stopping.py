"""Ctrl-C, at any time: one sentence, and no traceback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sweeps import epoch, wait_until

from dudx.lab.run import run_progress

ROOT = Path(__file__).parents[2]


def start(*arguments: str, program: str = "dudx_command") -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    known = os.environ | {"PYTHONPATH": paths, "MISCHIEF": "/nowhere"}
    # A shell that starts the tests in the background lets them ignore Ctrl-C, and processes inherit that.
    return subprocess.Popen(
        [sys.executable, "-m", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=known,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def sentences(process: subprocess.Popen[str]) -> list[str]:
    _, said = process.communicate(timeout=120)
    return [line for line in said.splitlines() if line.strip() and not re.search(r"epoch \d+/", line)]


@pytest.mark.slow
def test_while_it_imports(tmp_path: Path) -> None:
    process = start("train", "poisson", "--out", str(tmp_path / "run"))
    maps = Path(f"/proc/{process.pid}/maps")
    wait_until(lambda: "libtorch" in maps.read_text(), "torch is being imported")
    process.send_signal(signal.SIGINT)
    assert sentences(process) == ["dudx: stopped."]
    assert process.returncode == 130
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_once_and_twice_in_a_training(tmp_path: Path) -> None:
    for times in (1, 2):
        out = tmp_path / str(times)
        # Slow enough to be met in the middle of an epoch.
        process = start("train", "mischief:slow", "--profile", "smoke", "--epochs", "4000", "--out", str(out))
        wait_until(lambda out=out: epoch(out) >= 5, "the run gets that far")
        for _ in range(times):
            process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        said = sentences(process)
        assert process.returncode == 130
        assert said[0].startswith("dudx: finishing this epoch and saving")
        expected = "dudx: stopped at epoch" if times == 1 else "dudx: stopped."
        assert len(said) == 2
        assert said[1].startswith(expected)


def test_the_time_left_leaves_compilation_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    now = 0.0
    monkeypatch.setattr(run_progress.time, "monotonic", lambda: now)
    lines = run_progress.Lines("heat", "epoch", 100, 0)
    now = 60.0  # the first epoch waited for the compiler
    lines.update(1, {}, False)
    now = 80.0
    lines.update(11, {}, False)
    first, second = capsys.readouterr().err.splitlines()
    assert "left" not in first
    assert second.endswith("left 178 s")  # 89 epochs of 2 s


def test_the_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import dudx
    from dudx.lab import cli

    monkeypatch.setattr(sys, "argv", ["dudx", "--version"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    assert capsys.readouterr().out == f"dudx {dudx.__version__}\n"
