"""Shared by the tests of the laboratory: the program, and a small reproduction of everything, made once."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Said

from dudx.lab import cli
from dudx.lab.cli import program
from dudx.lab.locks import locked


@pytest.fixture
def dudx(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """The program in this process, by the entry point that users call: its exit code, and what it wrote where."""

    def called(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["dudx", *arguments])
        monkeypatch.setattr(program.console, "width", 200)
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(stop.value.code or 0), *capsys.readouterr()

    return called


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A file run as a program, in this process, and what it printed."""

    def called(path: Path, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [str(path), *map(str, arguments)])
        capsys.readouterr()
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out

    return called


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All experiments from end to end, by the command; once for all processes that the tests are spread over."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    out, said = shared / "smoke", shared / "smoke.said"
    with locked(shared / "smoke.lock", patience=600):
        if not said.exists():
            command = ["--all", "--profile", "smoke", "--out", str(out), "--workers", "1"]
            done = subprocess.run(
                [sys.executable, "-m", "reproduction", *command], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            said.write_text(done.stdout)
    return out
