"""Measurements in processes of their own, so that memory and settings of one do not affect another.

The server, `python -m reproduction.measurement_server`, imports once what takes seconds to import, and forks for each
measurement. It reads one JSON line per measurement, with function and arguments, and answers with one line, the result.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from dudx.backend.compiler import import_compiler
from dudx.errors import DudxError
from dudx.lab.sweep.sweep_run import sentence


class MeasurementServerError(DudxError, RuntimeError):
    """The measurement server has ended."""


class MeasurementServer:
    """Client of the server, which lives as long as this context."""

    def __enter__(self) -> Self:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        # A session of its own: Ctrl-C reaches the driver, which then ends it.
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Worker processes of the compiler would outlive the measurement that started them.
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"},
            start_new_session=True,
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            with contextlib.suppress(ProcessLookupError):  # it is gone already
                os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate()

    def result(self, function: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of `package.module:function`: a dictionary with a "status", also if it fails or dies."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # a dead server has no answer, which is noticed below
            self.process.stdin.write(json.dumps({"function": function, "arguments": dict(arguments)}) + "\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise MeasurementServerError(
                f"The measuring process ended with code {self.process.wait()}; start again to go on."
            )
        return json.loads(answer)


# -- the server's side ---------------------------------------------------------------------------------------------


def main() -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # so that prints do not garble the answers
    # Imported here, as optimizers would import it in every child, which takes seconds each time.
    import_compiler()
    for line in sys.stdin:
        job = json.loads(line)
        importlib.import_module(job["function"].partition(":")[0])  # here, once, and not in every child
        print(_forked(lambda job=job: _measured(job)), file=answers, flush=True)


def _forked(work: Callable[[], dict[str, Any]]) -> str:
    """Return the result of some work in a child process, as JSON."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(writing, "w") as pipe:
                pipe.write(json.dumps(work()) + "\n")
        finally:
            os._exit(0)  # in any case: the child must never answer the driver itself
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if text.endswith("\n"):
        return text.strip()
    code = os.waitstatus_to_exitcode(status)
    how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit with code {code}"
    return json.dumps({"status": "failed", "reason": f"Its process died by {how}."})


def _measured(job: Mapping[str, Any]) -> dict[str, Any]:
    module, _, name = job["function"].partition(":")
    return _attempted(lambda: getattr(importlib.import_module(module), name)(**job["arguments"]))


def _attempted(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return work()
    except Exception as error:
        traceback.print_exc()
        return {"status": "failed", "reason": sentence(error)}


# -- for measured functions ----------------------------------------------------------------------------------------


def limit_memory(megabytes: float) -> None:
    """Limit the memory that this process may take in addition to what it has."""
    if sys.platform == "linux":
        import resource  # not on Windows, where everything but measurements works

        limit = int((_status("VmData") + 1024 * megabytes) * 1024)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def in_own_process(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of some work in a forked process; this one must not have used a GPU yet."""
    return json.loads(_forked(lambda: _attempted(work)))


def peak_megabytes(make: Callable[[], Callable[[], None]], device: str) -> float | None:
    """Return the peak memory of the step that `make` returns, in MiB; None if the system does not report it.

    Call it in a process that has not computed anything yet, as free blocks would hide a peak.
    """
    if device == "cuda":
        step = make()
        step()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    if sys.platform != "linux":
        return None
    # Larger blocks come from the system and return to it at once; blocks kept by the C library would count.
    ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 2**16)
    step = make()
    step()  # workspaces that stay are not part of a step's cost
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # makes the kernel forget the peak so far
    before = _status("VmRSS")
    step()
    return (_status("VmHWM") - before) / 1024


_M_MMAP_THRESHOLD = -3


def _status(key: str) -> float:
    """Return an entry of /proc/self/status, in KiB."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(float(line.split()[1]) for line in status if line.startswith(key))


if __name__ == "__main__":
    main()
