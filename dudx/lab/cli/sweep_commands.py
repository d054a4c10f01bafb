"""The commands for many runs: sweep and compare."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dudx.lab.cli.program import (
    MANY,
    FurtherSettings,
    ProfileName,
    Workers,
    app,
    console,
    folder_option,
    show_table,
)


@app.command(rich_help_panel=MANY)
def sweep(
    problems: Annotated[list[str], typer.Argument(help="one or more problems, named as for `dudx train`")],
    out: Annotated[Path, folder_option("receives a folder per run, and sweep.csv")],
    engines: Annotated[str | None, typer.Option(help="engines, separated by commas; default: the profile's")] = None,
    seeds: Annotated[str, typer.Option(help="seeds: 0-4, or 0,1,2")] = "0-4",
    profile: ProfileName = "cpu",
    set_: FurtherSettings = None,
    workers: Workers = None,
    slurm: Annotated[str | None, typer.Option(help="submit a job per run: timeout_min=60,slurm_partition=cpu")] = None,
) -> None:
    """Run problems × engines × seeds and compare them. It can be stopped; the same command resumes it.

    Example: dudx sweep poisson heat --engines ad,fd,sfd --seeds 0-4 --out runs/compare
    """
    from dudx.lab.run.settings import parsed
    from dudx.lab.sweep import grid, run_sweep, slurm_workers, sweep_table

    further = parsed(set_ or [], ["engine", "seed"])
    compared = {} if engines is None else {"engine": [name.strip() for name in engines.split(",")]}
    axes = {"problem": problems, **compared, **further, "seed": sweep_table.parsed_seeds(seeds)}
    asked = None if slurm is None else slurm_workers.parsed(slurm)
    outcomes = run_sweep(grid(profile, **axes), out, workers, slurm=asked)
    sweep_table.write_csv(out / "sweep.csv", outcomes)
    varied = [key for key, values in further.items() if isinstance(values, list)]
    console.print(sweep_table.shown(outcomes, ["problem", "engine", *varied]))
    for outcome in outcomes:
        if outcome.status == "failed":
            print(f"dudx: {outcome.name} failed: {outcome.reason}", file=sys.stderr)
    finished = sum(outcome.status == "finished" for outcome in outcomes)
    if any(outcome.status == "interrupted" for outcome in outcomes):
        print(
            f"dudx: stopped with {finished} of {len(outcomes)} runs finished; the same command goes on.",
            file=sys.stderr,
        )
        raise typer.Exit(130)
    if finished < len(outcomes):
        raise typer.Exit(3)


@app.command(rich_help_panel=MANY)
def compare(
    runs: Annotated[list[Path], typer.Argument(help="folders of runs or of sweeps")],
    out: Annotated[Path | None, typer.Option(help="a picture of errors and times, .png or .pdf")] = None,
    csv: Annotated[Path | None, typer.Option(help="a CSV file with a line per run")] = None,
) -> None:
    """Compare runs: their differing settings, errors over the seeds, and times.

    Example: dudx compare runs/adam runs/lm runs/sweep --out compared.png
    """
    from dudx.lab import plots
    from dudx.lab.sweep import comparison, sweep_table

    if out is not None:
        plots.check_picture(out)
    found = comparison.found_in(runs)
    keys = comparison.differing([outcome for _, outcome in found])
    headings, rows = comparison.table(found, keys)
    show_table(headings, rows, words=len(keys))
    if csv is not None:
        sweep_table.write_csv(csv, [outcome for _, outcome in found])
    if out is not None:
        comparison.draw(out, found, keys)
        console.print(f"The picture is {out}.")
