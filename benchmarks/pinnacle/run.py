"""Solve the problems of PINNacle with default settings, score them, and write one table.

    python benchmarks/pinnacle/run.py [NAMES] [--minutes 5] [--seeds 0 --seeds 1] [--data DIR] [--out out/pinnacle]

Each run is a process of its own with one thread, and a file `NAME_SEED.json` in the folder of results. Runs that have a
file are not made again, failed ones included (`--retry`). References are computed once, at two resolutions, and kept in
the folder `references` beside the results. `--shown` runs nothing and writes the table of existing results.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.pinnacle.one_run import FOLDER, one_run, stated
from benchmarks.pinnacle.references.registry import SOURCES, samples_of
from benchmarks.pinnacle.table import write_page, write_table
from dudx.errors import InputError, percent
from dudx.lab import file_formats
from dudx.lab.cli import run_program
from dudx.lab.cli.program import console, folder_option
from examples.run_gallery import PROFILES, names_in

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "pinnacle"
#: Seconds that a run has to end after Ctrl-C.
_PATIENCE = 60

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def main(
    names: Annotated[list[str] | None, typer.Argument(help="names of problems; default: all")] = None,
    minutes: Annotated[
        float, typer.Option(help="maximum CPU minutes per run; twice as many with two dimensions and time")
    ] = 5.0,
    seeds: Annotated[list[int] | None, typer.Option(help="seeds; default: 0, 1 and 2")] = None,
    data: Annotated[Path | None, typer.Option(help="folder of the suite's data files, to score against them")] = None,
    out: Annotated[Path, folder_option("folder of results, pictures and references")] = str(OUT),  # type: ignore[assignment]
    profile: Annotated[str, typer.Option(help="cpu, or smoke for seconds")] = "cpu",
    retry: Annotated[bool, typer.Option("--retry", help="make failed runs again")] = False,
    page: Annotated[Path | None, typer.Option(help="a page to write the table into as well")] = None,
    shown: Annotated[bool, typer.Option("--shown", help="run nothing, write the table")] = False,
    references: Annotated[
        bool, typer.Option("--references", help="compute the references alone, and print how well they agree")
    ] = False,
    one: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Solve the problems that have no result yet, and write one table."""
    if profile not in PROFILES:
        raise InputError(f"There are the profiles {', '.join(PROFILES)}; got {profile!r}.")
    there = names_in(FOLDER)
    if strangers := [name for name in names or [] if name not in there]:
        raise InputError(f"There is no problem {strangers[0]!r}; there are {', '.join(there)}.")
    if data is not None and not data.is_dir():
        raise InputError(f"There is no folder {str(data)!r} with data.")
    chosen, wanted = names or there, seeds or [0, 1, 2]
    file_formats.make_folder(out)
    if one is not None:
        row = one_run(chosen[0], wanted[0], minutes, PROFILES[profile][1], out, out / "references", data)
        if row is None:
            raise typer.Exit(130)
        file_formats.write_json(one, row)
        return
    if references:
        for name in chosen:
            console.print(agreement(name, out / "references", data))
        return
    if not shown:
        options = ["--minutes", str(minutes), "--profile", profile, "--out", str(out)]
        options += [] if data is None else ["--data", str(data)]
        run(chosen, wanted, out, minutes, retry, lambda name, seed, to: in_process(name, seed, to, options))
    rows = write_table(out)
    if page is not None:
        write_page(out, page)
    console.print(f"{len(rows)} results, the table: {out / 'README.md'}")
    if any("failed" in row for row in rows):
        raise typer.Exit(3)


def run(
    names: Sequence[str], seeds: Sequence[int], out: Path, minutes: float, retry: bool,
    make: Callable[[str, int, Path], int], report: Callable[[str], None] = print,
) -> None:  # fmt: skip
    """Make the runs that have no result yet, one seed of all problems after the other.

    Args:
        names: the names of the problems.
        seeds: the seeds.
        out: the folder of results.
        minutes: the limit; results with a smaller one are computed again.
        retry: compute failed ones again.
        make: makes a run that writes its row to a path, and returns the exit code of its process.
        report: receives a line per run.
    """
    for seed, name in ((seed, name) for seed in seeds for name in names):
        place = out / f"{name}_{seed}.json"
        if place.exists():
            kept = file_formats.read_json(place, dict)
            if kept["minutes"] >= minutes and not (retry and "failed" in kept):
                continue
        report(f"== {name}, seed {seed}")
        with tempfile.TemporaryDirectory() as folder:
            found = Path(folder) / "row.json"
            code = make(name, seed, found)
            if code in (130, -signal.SIGINT):
                report(f"{name} was interrupted; the same command goes on with it.")
                return
            row = file_formats.read_json(found, dict) if found.exists() else _without_result(name, seed, minutes, code)
        file_formats.write_json(place, row)
        report(line_of(row))
        write_table(out)


def in_process(name: str, seed: int, to: Path, options: Sequence[str]) -> int:
    """Make one run in a process of its own with one thread; Ctrl-C reaches it too, and it is waited for."""
    command = [sys.executable, str(Path(__file__)), name, "--seeds", str(seed), "--one", str(to), *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                process.wait(_PATIENCE)
            process.kill()
            return 130


def _without_result(name: str, seed: int, minutes: float, code: int) -> dict[str, Any]:
    ended = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    return {"name": name, "title": name, "seed": seed, "minutes": minutes, "failed": f"the process {ended}"}


def line_of(row: dict[str, Any]) -> str:
    """Return one line for the screen."""
    if "failed" in row:
        return f"{row['name']}, seed {row['seed']}: failed, {row['failed']}"
    each = ", ".join(f"{name} {percent(error)}" for name, error in row["errors"].items())
    shown = f"error {percent(row['error'])}" + (f" ({each})" if len(row["errors"]) > 1 else "")
    if "suite_error" in row:
        shown += f", against the suite's data {percent(row['suite_error'])}"
    return (
        f"{row['name']}, seed {row['seed']}: {shown}, estimated {percent(row['estimate'])}, "
        f"{row['cpu_seconds']:.0f} CPU seconds, {row['steps']} steps, {row['megabytes']} MB"
    )


def agreement(name: str, folder: Path, data: Path | None) -> str:
    """Compute a reference and say how well its two resolutions agree."""
    problem, own = stated(name, data)
    found = samples_of(name, problem, folder, data if own else None)
    says = "a formula" if found.agreement is None else f"resolutions agree to {percent(found.agreement)}"
    return f"{name}: {SOURCES[name].method}, {len(found.points)} points, {says}"


if __name__ == "__main__":
    run_program(app)
