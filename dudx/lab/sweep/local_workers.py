"""Run a sweep in processes of this machine.

Each worker is a `concurrent.futures.ProcessPoolExecutor` of one process, so that the death of a process concerns the
run it trained and no other one. A pipe ties it to the driver: when the driver closes its end, or dies, the worker lets
its run finish the epoch and save, and exits. All that is known of a run is in its folder.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from dudx.lab.sweep.sweep_run import Run, Work, attempt, write_death

LOG = "workers.log"


def work(runs: Sequence[Run], folder: Path, workers: int, retries: int) -> Work:
    """Train runs in as many processes at the same time; yield each run as it ends."""
    crew = _Crew(folder, retries)
    futures: list[Future[tuple[Run, str | None]]] = []
    with _single_threaded_children(), ThreadPoolExecutor(min(workers, len(runs))) as threads:
        try:
            futures.extend(threads.submit(crew.finish, run) for run in runs)
            for future in as_completed(futures):
                yield future.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            crew.stop()
            try:
                wait([future for future in futures if not future.cancelled()])
                crew.join()
            except KeyboardInterrupt:  # pressed for a second time
                crew.kill()
                raise
            if (folder / LOG).exists() and not (folder / LOG).stat().st_size:
                (folder / LOG).unlink()


@contextmanager
def _single_threaded_children() -> Iterator[None]:
    """Start processes with one OpenMP thread; a run that is to have more sets its own number."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        os.environ.pop("OMP_NUM_THREADS") if before is None else os.environ.update(OMP_NUM_THREADS=before)


def _block_ctrl_c() -> None:
    """Block SIGINT in this thread and the processes it starts: Ctrl-C reaches the driver, which stops them."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


class _Crew:
    """The workers, started when none is idle; every method may be called from several threads."""

    def __init__(self, folder: Path, retries: int):
        self.folder, self.retries = folder, retries
        self.idle: list[_Worker] = []
        self.all: list[_Worker] = []
        self.stopped = False
        self.lock = threading.Lock()

    def finish(self, run: Run) -> tuple[Run, str | None]:
        """Train a run to its end; if its process dies, another one resumes it from the checkpoint."""
        death = ""
        for _ in range(1 + self.retries):
            worker = self._free_worker()
            if worker is None:
                return run, None
            try:
                status, reason = worker.pool.submit(_train, run, self.folder / run.name).result()
            except BrokenProcessPool:
                death = worker.exit()
            else:
                if run.own_code:
                    worker.exit()
                else:
                    self.idle.append(worker)
                if status != "interrupted":
                    return run, reason
                death = "a polite signal"
            if self.stopped:
                return run, None
        write_death(self.folder / run.name, 1 + self.retries, death)
        return run, None

    def _free_worker(self) -> _Worker | None:
        """Return an idle worker or a new one; None if the sweep is being stopped."""
        with self.lock:
            if self.stopped:
                return None
            if self.idle:
                return self.idle.pop()
            self.all.append(_Worker(self.folder / LOG))
            return self.all[-1]

    def stop(self) -> None:
        """Ask all workers to finish their epoch, save and exit."""
        with self.lock:
            self.stopped = True
            for worker in self.all:
                worker.connection.close()

    def join(self) -> None:
        """Wait until all workers have exited."""
        for worker in self.all:
            worker.exit()

    def kill(self) -> None:
        """End all workers at once."""
        for worker in self.all:
            for process in worker.processes:
                process.kill()


class _Worker:
    """A process that trains one run after the other, as the driver sees it."""

    def __init__(self, log: Path):
        # A fresh interpreter: torch's threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        theirs, self.connection = context.Pipe(duplex=False)
        self.pool = ProcessPoolExecutor(1, context, _begin, (theirs, log))
        _block_ctrl_c()  # not before: multiprocessing unblocks it when it starts its resource tracker
        self.pool.submit(os.getpid)  # starts the process
        #: Kept for their exit codes, which `concurrent.futures` does not tell.
        self.processes = list(self.pool._processes.values())

    def exit(self) -> str:
        """Wait for the process to exit and return how it did."""
        self.pool.shutdown()
        self.connection.close()
        code = self.processes[0].exitcode
        assert code is not None
        return f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit with code {code}"


# -- in the worker's process ---------------------------------------------------------------------------------------

#: Held while a run is trained.
_busy = threading.Lock()


def _begin(connection: Connection, log: Path) -> None:
    """Send what is printed to the log, and watch for the end of the connection to the driver."""
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    # While a run is trained, the trainer's own handler is in place and finishes the epoch.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_watch, args=(connection,), daemon=True).start()


def _watch(connection: Connection) -> None:
    """Exit when the driver hangs up; a run that is being trained is stopped politely first."""
    with contextlib.suppress(EOFError, OSError):
        connection.recv()
    if not _busy.acquire(blocking=False):
        if hasattr(signal, "pthread_kill"):
            # To the main thread, as a signal that another thread gets does not wake it.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        else:  # on Windows
            signal.raise_signal(signal.SIGTERM)
        _busy.acquire()
    os._exit(0)


def _train(run: Run, folder: Path) -> tuple[str, str | None]:
    with _busy:
        return attempt(run, folder)
