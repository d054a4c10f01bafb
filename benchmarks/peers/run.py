"""Measure time and peak memory of a full training step: dudx and other libraries in interleaved rounds.

    cd benchmarks
    ../.venv/bin/python -m peers.environments        # once
    ../.venv/bin/python -m peers.run --quick         # one small case
    ../.venv/bin/python -m peers.run                 # hours; can be interrupted and restarted
    ../.venv/bin/python -m peers.report

Every subject gets the same weights, points, precision (float32) and number of threads. Before it is timed, its residual
and its gradient are compared with raw autograd in double precision. Rows are appended to a CSV file. Existing rows are
not measured again; with --retry, failed ones are.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from harness import HERE, Subject, WorkerError, make_case
from peers import environments
from peers.problems import INPUTS
from peers.results import FINAL, Results, Row
from peers.subjects import BASE, Entry, entries

DEPTH = 4
FEWEST = 3  # minimum number of timed steps when the time budget is used up


def main() -> None:
    """Measure all requested rows that are missing."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    results = Results(options.out / "results.csv")
    # One compiler process per compiled subject instead of a pool, which would disturb the measurements.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as temporary, (options.out / "workers.log").open("a", encoding="utf-8") as log:
        for problem in options.cases:
            for width in options.widths:
                for batch in sorted(options.batches):
                    Group(problem, width, batch, options, results, Path(temporary), log).run()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=INPUTS, default=list(INPUTS))
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--batches", type=int, nargs="+", default=[2**k for k in range(8, 20)])
    parser.add_argument("--subjects", nargs="+", help="only these, by name; AD is always included as the reference")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--chunk", type=_chunk, default="auto", help="points per slice of the streamed engines")
    parser.add_argument("--limit", type=float, default=20, help="seconds; longer steps are skipped")
    parser.add_argument("--budget", type=float, default=60, help="seconds of timing per subject and case")
    parser.add_argument("--patience", type=float, default=900, help="seconds to wait for an answer, with compilation")
    parser.add_argument("--memory", type=float, default=_physical() / 2, help="gigabytes a subject may take")
    parser.add_argument("--retry", action="store_true", help="repeat failed measurements")
    parser.add_argument("--quick", action="store_true", help="one small case, few repeats, one thread")
    parser.add_argument("--out", type=Path, default=HERE.parent / "runs" / "peers")
    options = parser.parse_args()
    if options.quick:
        options.cases, options.widths, options.batches = ["poisson"], [64], [2048]
        options.repeats, options.threads = 3, 1
    return options


def _chunk(text: str) -> int | str:
    return text if text == "auto" else int(text)


def _physical() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)


@dataclass
class Contestant:
    """A running subject and its row of the table."""

    entry: Entry
    subject: Subject
    row: Row


@dataclass
class Group:
    """Measure all subjects on one problem, width and batch."""

    problem: str
    width: int
    batch: int
    options: argparse.Namespace
    results: Results
    folder: Path
    log: IO[str]

    def run(self) -> None:
        """Start missing subjects, time them in rounds and write their rows."""
        everyone = entries(self.options.chunk)
        missing = [e for e in everyone if self._is_wanted(e) and not self._is_known(e) and not self._is_hopeless(e)]
        if not missing:
            return
        print(f"{self.problem}, width {self.width}, batch {self.batch}: {len(missing)} subjects", flush=True)
        self.case = make_case(self.folder, INPUTS[self.problem], self.width, DEPTH, self.batch)
        self.case |= {"problem": self.problem, "memory": int(1e9 * self.options.memory)}
        self.truth = self._truth()
        running: list[Contestant] = []
        try:
            for entry in self._with_base(everyone, missing):
                running += self._started(entry)
            running = self._timed(running)
        finally:
            for contestant in running:
                contestant.subject.stop()
        self._write(running, missing)
        Path(self.case["file"]).unlink()

    # -- selection ----------------------------------------------------------------------------------------------

    def _blank(self, entry: Entry, status: str = "ok", reason: str = "") -> Row:
        return Row(self.problem, self.width, self.batch, self.options.threads, entry.name, status, reason)

    def _is_wanted(self, entry: Entry) -> bool:
        return self.options.subjects is None or entry.name in self.options.subjects

    def _is_known(self, entry: Entry) -> bool:
        row = self.results.rows.get(self._blank(entry).key)
        return row is not None and row.status in (("ok",) if self.options.retry else FINAL)

    def _with_base(self, everyone: Sequence[Entry], missing: Sequence[Entry]) -> list[Entry]:
        """Return the missing subjects, and AD as the reference unless it is known to fail."""
        base = next(entry for entry in everyone if entry.name == BASE)
        row = self.results.rows.get(self._blank(base).key)
        runs = not self._is_hopeless(base) if row is None else row.status == "ok"
        return [base, *missing] if runs and base not in missing else list(missing)

    def _is_hopeless(self, entry: Entry) -> bool:
        """Return True and write the row if a subject is known to fail or to take too long."""
        blank = self._blank(entry)
        if entry.environment is not None and (why := environments.reason_missing(entry.environment)) is not None:
            self.results.add(replace(blank, status="not installed", reason=why))
            return True
        before = self.results.smaller(blank)
        if before is None:
            return False
        expected = before.median / 1e3 * self.batch / before.batch
        if before.status in ("failed", "skipped"):
            why = before.reason if before.status == "skipped" else f"failed at batch {before.batch}: {before.reason}"
            self.results.add(replace(blank, status="skipped", reason=why))
        elif expected > self.options.limit:
            why = f"a step takes {before.median / 1e3:.1f} s at batch {before.batch}"
            self.results.add(replace(blank, status="skipped", reason=why))
        elif before.status == "not supported":
            self.results.add(replace(blank, status=before.status, reason=before.reason))
        else:
            return False
        return True

    # -- reference ----------------------------------------------------------------------------------------------

    def _truth(self) -> list[np.ndarray]:
        subject = self._subject(Entry("reference", "peers/worker_reference.py"))
        subject.patience = None
        subject.start()
        try:
            return self._answers(subject)
        finally:
            subject.stop()

    def _subject(self, entry: Entry) -> Subject:
        return Subject(
            entry.name,
            entry.script,
            {**self.case, **entry.options},
            python=environments.python(entry.environment),
            threads=self.options.threads,
            log=self.log,
            patience=self.options.patience,
        )

    def _answers(self, subject: Subject) -> list[np.ndarray]:
        """Return residual and gradient of a subject."""
        file = self.folder / "answer.npy"
        answers = []
        for what in ("residual", "gradient"):
            subject.ask(do=what, file=str(file))
            answers.append(np.load(file))
        return answers

    # -- measuring -----------------------------------------------------------------------------------------------

    def _started(self, entry: Entry) -> list[Contestant]:
        """Start a subject, check it and measure its memory; return an empty list and write the row if it fails."""
        subject, row = self._subject(entry), self._blank(entry)
        subject.start()
        try:
            row = replace(row, first=1e3 * subject.ask(do="time")["seconds"])  # includes compilation
            if entry.tolerance is not None:
                row = self._checked(row, self._answers(subject), entry.tolerance)
            if row.status == "ok":
                return [Contestant(entry, subject, replace(row, megabytes=subject.peak()))]
        except WorkerError as error:
            row = _failed(row, error)
        except BaseException:
            subject.stop()
            raise
        subject.stop()
        self.results.add(row)
        print(f"  {row.subject}: {row.status}: {row.reason}", flush=True)
        return []

    def _checked(self, row: Row, answers: Sequence[np.ndarray], tolerance: tuple[float, float]) -> Row:
        errors = [_error(answer, truth) for answer, truth in zip(answers, self.truth, strict=True)]
        row = replace(row, residual_error=errors[0], gradient_error=errors[1])
        for what, error, allowed in zip(("residual", "gradient"), errors, tolerance, strict=True):
            if not error <= allowed:
                return replace(row, status="differs", reason=f"the {what} is off by {error:.1e} (> {allowed:.0e})")
        return row

    def _timed(self, running: list[Contestant]) -> list[Contestant]:
        """Time one step per subject and round; failed subjects are recorded and removed."""
        for _ in range(self.options.repeats):
            for contestant in list(running):
                seconds = contestant.subject.seconds
                if sum(seconds) > self.options.budget and len(seconds) >= FEWEST:
                    continue
                try:
                    seconds.append(contestant.subject.next_step()["seconds"])
                except WorkerError as error:
                    contestant.subject.stop()
                    running.remove(contestant)
                    self.results.add(_failed(contestant.row, error))
        return running

    def _write(self, running: Sequence[Contestant], missing: Sequence[Entry]) -> None:
        base = [1e3 * c.subject.median for c in running if c.entry.name == BASE]
        for contestant in running:
            if contestant.entry not in missing:
                continue  # AD as the reference only; its row comes from its own measurement
            seconds = contestant.subject.seconds
            row = replace(
                contestant.row,
                median=1e3 * statistics.median(seconds),
                best=1e3 * min(seconds),
                base=base[0] if base else float("nan"),
                repeats=len(seconds),
            )
            self.results.add(row)
            print(f"  {row.subject}: {row.median:.1f} ms, {row.megabytes:.0f} MB", flush=True)


def _error(answer: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean((answer - truth) ** 2) / np.mean(truth**2)))


#: Messages of torch, XLA, C++ and Python about exhausted memory.
OUT_OF_MEMORY = ("allocate memory", "RESOURCE_EXHAUSTED", "Out of memory", "bad_alloc", "MemoryError")


def _failed(row: Row, error: WorkerError) -> Row:
    if error.kind == "NotImplementedError":
        return replace(row, status="not supported", reason=error.reason)
    said: dict[str, Any] = {"status": "failed", "reason": error.reason}
    if error.kind == "MemoryError" or any(words in error.reason for words in OUT_OF_MEMORY):
        said["reason"] = "out of memory"
    return replace(row, **said)


if __name__ == "__main__":
    main()
