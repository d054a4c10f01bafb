"""Runs on the cores of this machine: processes that take one run after the other.

A worker is `python -m dudx.lab.sweep.local_workers`. It reads runs from its standard input, one JSON line each, and
answers each with a line. When the input ends, because the driver wants it to stop or is no more, the worker lets its
run finish the epoch, save, and goes. All that is known of a run is in its folder, so nothing else need be told.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from pathlib import Path
from typing import IO, Any

from dudx.errors import DudxError
from dudx.lab.run.settings import Settings
from dudx.lab.sweep.sweep_run import Run, Work, execute, sentence, write_death

LOG = "workers.log"


def work(runs: Sequence[Run], folder: Path, workers: int, retries: int) -> Work:
    """Have the runs done by processes on this machine."""
    with (folder / LOG).open("ab") as log, ThreadPoolExecutor(min(workers, len(runs))) as threads:
        crew = _Crew(folder, log, retries)
        futures: list[Future[tuple[Run, str | None]]] = []
        try:
            futures.extend(threads.submit(crew.finish, run) for run in runs)
            for future in as_completed(futures):
                yield future.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            crew.dismiss()
            try:
                wait([future for future in futures if not future.cancelled()])
                crew.wait()
            except KeyboardInterrupt:  # asked for a second time
                crew.kill()
                raise
            if not os.fstat(log.fileno()).st_size:
                (folder / LOG).unlink()


class _Crew:
    """The workers, hired when there is no idle one; every method may be called from several threads."""

    def __init__(self, folder: Path, log: IO[bytes], retries: int):
        self.folder, self.log, self.retries = folder, log, retries
        self.idle: list[_Worker] = []
        self.all: list[_Worker] = []
        self.dismissed = False
        self.lock = threading.Lock()

    def finish(self, run: Run) -> tuple[Run, str | None]:
        """Have a run done; when its worker dies another one goes on from the checkpoint."""
        end = ""
        for _ in range(1 + self.retries):
            worker = self._hired()
            if worker is None:
                return run, None
            answer = worker.do(run, self.folder / run.name)
            if answer is not None:
                self._release(worker, run)
                return run, answer["error"]
            end = worker.end()
            if self.dismissed:
                return run, None
        write_death(self.folder / run.name, 1 + self.retries, end)
        return run, None

    def _hired(self) -> _Worker | None:
        with self.lock:
            if self.dismissed:
                return None
            if self.idle:
                return self.idle.pop()
            worker = _Worker(self.log)
            self.all.append(worker)
            return worker

    def _release(self, worker: _Worker, run: Run) -> None:
        with self.lock:
            if run.own_code:
                worker.dismiss()
            else:
                self.idle.append(worker)

    def dismiss(self) -> None:
        """Ask all to finish their epoch, save and go."""
        with self.lock:
            self.dismissed = True
            for worker in self.all:
                worker.dismiss()

    def wait(self) -> None:
        """Until all are gone."""
        for worker in self.all:
            worker.end()

    def kill(self) -> None:
        """End all at once."""
        for worker in self.all:
            worker.process.kill()


class _Worker:
    """A worker process, seen from the driver."""

    def __init__(self, log: IO[bytes]):
        # What the driver can import its workers can, too. Workers have a session of their own, so that Ctrl-C reaches
        # only the driver, which then asks them once.
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )

    def do(self, run: Run, folder: Path) -> dict[str, Any] | None:
        """Have a run brought to its end; None if the process ends before."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        job = {"name": run.name, "folder": str(folder), "settings": run.settings.model_dump()}
        try:
            self.process.stdin.write(json.dumps(job).encode() + b"\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):  # it died, or was dismissed just now
            return None
        answer = self.process.stdout.readline()
        return json.loads(answer) if answer.endswith(b"\n") else None

    def dismiss(self) -> None:
        """End its input."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is gone already
            self.process.stdin.close()

    def end(self) -> str:
        """How the process ended, once it has."""
        assert self.process.stdout is not None
        code = self.process.wait()
        self.process.stdout.close()
        return f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit with code {code}"


# -- the worker's side ---------------------------------------------------------------------------------------------


def main() -> None:
    """Do what the driver asks until it hangs up."""
    # Whatever prints must not garble the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    jobs: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    busy = threading.Lock()
    # While it trains, the trainer's own handlers are in place and finish the epoch; anywhere else nothing is lost.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_listen, args=(jobs, busy), daemon=True).start()
    try:
        for job in iter(jobs.get, None):
            if not busy.acquire(blocking=False):
                break
            answer = _answered(job)
            busy.release()
            if answer is None:  # told to stop
                break
            print(json.dumps(answer), file=answers, flush=True)
    except (KeyboardInterrupt, BrokenPipeError):
        pass


def _listen(jobs: queue.SimpleQueue[dict[str, Any] | None], busy: threading.Lock) -> None:
    """Pass on what the driver asks; when it hangs up, stop the run in hand or let none begin."""
    # Unbuffered, as the interpreter cannot end while a thread waits in a buffer's lock.
    for line in os.fdopen(sys.stdin.fileno(), "rb", buffering=0, closefd=False):
        jobs.put(json.loads(line))
    jobs.put(None)
    if not busy.acquire(blocking=False):
        if hasattr(signal, "pthread_kill"):
            # To the main thread, as a signal that another thread gets does not wake it.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        else:  # on Windows
            signal.raise_signal(signal.SIGTERM)


def _answered(job: dict[str, Any]) -> dict[str, Any] | None:
    run = Run(job["name"], Settings(**job["settings"]))
    try:
        done = execute(run, Path(job["folder"]))
    except DudxError as error:  # what its folder cannot tell: it is locked, or the disk is full
        return {"error": sentence(error)}
    return None if done.status == "interrupted" else {"error": None}


if __name__ == "__main__":
    main()
