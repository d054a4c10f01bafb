"""Measure several implementations of one training step, each in a process of its own, all in one interleaved run.

A worker process builds its step once and then answers requests, one JSON line each: its residual, the time of a step,
the peak memory of a step. Residuals are compared before anything is timed. The driver queries the workers in turn, so
that changes of the machine's load affect all of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import json
import os
import resource
import select
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

HERE = Path(__file__).parent
_LONG = 2.0  # a step longer than this many seconds is timed without a preceding one


class Step(Protocol):
    """Interface of a worker: one full training step, and the residual and gradient for the check."""

    def residual(self) -> np.ndarray: ...

    def gradient(self) -> np.ndarray: ...

    def step(self) -> None: ...


class WorkerError(RuntimeError):
    """Failure of a worker; `kind` is the name of its exception, "died" or "silent"."""

    def __init__(self, name: str, kind: str, reason: str):
        super().__init__(f"{name}: {reason}")
        self.kind = kind
        self.reason = reason


# -- the worker's side ---------------------------------------------------------------------------------------------


def serve(build: Callable[[Mapping[str, Any]], Step]) -> None:
    """Build the step described on the command line and answer the driver until it closes the connection.

    A case may limit the memory ("memory", in bytes), so that a step that is too large fails in its own process.
    """
    case = json.loads(sys.argv[1])
    if "memory" in case:
        resource.setrlimit(resource.RLIMIT_DATA, (case["memory"], case["memory"]))
    # Output of libraries would corrupt the answers, so it is redirected to stderr.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    subject: Step | None = None
    for line in sys.stdin:
        try:
            if subject is None:
                subject = build(case)
            answer = _answer(subject, json.loads(line))
        except Exception as error:
            traceback.print_exc()
            answer = {"kind": type(error).__name__, "error": (str(error).strip() or repr(error)).splitlines()[0]}
        print(json.dumps(answer), file=answers, flush=True)


def _answer(subject: Step, request: Mapping[str, Any]) -> dict[str, Any]:
    if request["do"] == "residual":
        np.save(request["file"], np.asarray(subject.residual()).reshape(-1))
        return {}
    if request["do"] == "gradient":
        np.save(request["file"], np.asarray(subject.gradient()).reshape(-1))
        return {}
    if request["do"] == "memory":
        subject.step()  # permanent workspaces are not part of a step's cost
        gc.collect()
        time.sleep(0.1)  # threads of a library may still be cleaning up
        ctypes.CDLL(None).malloc_trim(0)
        reset_peak()
        before = resident("VmRSS")
        subject.step()
        return {"megabytes": (resident("VmHWM") - before) / 1024}
    if request.get("again"):
        subject.step()
    steps = request.get("steps", 1)
    start, processor = time.perf_counter(), time.process_time()
    for _ in range(steps):
        subject.step()
    return {
        "seconds": (time.perf_counter() - start) / steps,
        "processor": (time.process_time() - processor) / steps,
    }


def resident(key: str) -> float:
    """Return VmRSS (current) or VmHWM (peak) of this process in KiB."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(float(line.split()[1]) for line in status if line.startswith(key))


def reset_peak() -> None:
    """Reset the peak memory that the kernel records."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


# -- the driver's side ---------------------------------------------------------------------------------------------


@dataclass
class Subject:
    """One implementation, running in its own process."""

    name: str
    script: str
    case: Mapping[str, Any]
    python: str = sys.executable
    threads: int = 2
    #: File for the worker's own output; None shows it.
    log: IO[str] | None = None
    #: Seconds to wait for an answer; None waits without limit.
    patience: float | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    #: Number of steps that are timed together and averaged.
    steps: int = 1
    seconds: list[float] = field(default_factory=list)
    megabytes: float = float("nan")

    def start(self) -> None:
        """Start the process, which builds its step before it answers."""
        threads = {"OMP_NUM_THREADS": str(self.threads), "MKL_NUM_THREADS": str(self.threads)}
        self.process = subprocess.Popen(
            [self.python, str(HERE / self.script), json.dumps(self.case)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, **threads, "PYTHONPATH": str(HERE), **self.variables},
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send one request and return the answer; a failure of the worker is raised as `WorkerError`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # a dead worker has no answer; handled below
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], self.patience)[0]:
            self.process.kill()
            raise WorkerError(self.name, "silent", f"no answer within {self.patience:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise WorkerError(self.name, "died", f"the process ended with code {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(self.name, answer["kind"], answer["error"])
        return answer

    def next_step(self) -> dict[str, Any]:
        """Return the time of a step that follows another, as in training.

        A first, untimed step warms up the caches after the turns of the other subjects. Steps that take seconds are
        timed without it.
        """
        return self.ask(do="time", steps=self.steps, again=not self.seconds or self.seconds[-1] < _LONG)

    def stop(self) -> None:
        """Close the connection and wait for the process."""
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate()

    def peak(self) -> float:
        """Return the peak memory of a step in MiB, measured in a new process.

        In it the C library requests every larger block from the system and returns it at once. Otherwise freed blocks
        that it keeps count as in use and hide part of the peak.
        """
        twin = replace(self, variables={**self.variables, "MALLOC_MMAP_THRESHOLD_": str(2**16)})
        twin.start()
        try:
            return twin.ask(do="memory")["megabytes"]
        finally:
            twin.stop()

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def measure(
    subjects: Sequence[Subject], folder: Path, repeats: int, tolerance: Mapping[str, float] | None = None
) -> None:
    """Measure memory once and time in rounds; with tolerances, first check that all agree with the first subject."""
    try:
        for subject in subjects:
            subject.start()
            if tolerance is not None:
                agree(subject, subjects[0], folder, tolerance)
            subject.megabytes = subject.peak()
        time_in_rounds(subjects, repeats)
    finally:
        for subject in subjects:
            if hasattr(subject, "process"):
                subject.stop()


def time_in_rounds(subjects: Sequence[Subject], repeats: int) -> None:
    """Time one step of each subject per round; the first step of each subject is a warm-up."""
    for subject in subjects:
        subject.ask(do="time")
    for _ in range(repeats):
        for subject in subjects:
            subject.seconds.append(subject.next_step()["seconds"])


def agree(subject: Subject, first: Subject, folder: Path, tolerance: Mapping[str, float]) -> None:
    """Raise an error if a subject's residual differs from the first subject's, which is stored in the folder."""
    file, truth = (folder / f"{s.name.replace(' ', '-')}.npy" for s in (subject, first))
    subject.ask(do="residual", file=str(file))
    residual, expected = np.load(file), np.load(truth)
    error = np.sqrt(np.mean((residual - expected) ** 2) / np.mean(expected**2))
    allowed = tolerance.get(subject.name, 1e-4)
    if not error <= allowed:
        raise RuntimeError(f"{subject.name} differs from {first.name} by {error:.1e} (> {allowed:.0e}).")


def make_case(folder: Path, inputs: int, width: int, depth: int, batch: int) -> dict[str, Any]:
    """Write weights of a tanh network and points to a file that all implementations use."""
    generator = np.random.default_rng(0)
    sizes = [inputs, *[width] * depth, 1]
    arrays: dict[str, np.ndarray] = {"x": generator.uniform(-1, 1, (batch, inputs)).astype(np.float32)}
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        bound = fan_in**-0.5
        arrays[f"w{i}"] = generator.uniform(-bound, bound, (fan_out, fan_in)).astype(np.float32)
        arrays[f"b{i}"] = generator.uniform(-bound, bound, fan_out).astype(np.float32)
    path = folder / f"case-{inputs}-{width}-{depth}-{batch}.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return {"file": str(path), "inputs": inputs, "width": width, "depth": depth, "batch": batch}
