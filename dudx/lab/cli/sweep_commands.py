"""The command for many runs: sweep."""

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
) -> None:
    """Run problems × engines × seeds and compare them. It can be stopped; the same command resumes it.

    Example: dudx sweep poisson heat --engines ad,fd,sfd --seeds 0-4 --out runs/compare
    """
    from dudx.lab.run.settings import parsed
    from dudx.lab.sweep import grid, run_sweep, sweep_table

    further = parsed(set_ or [], ["engine", "seed"])
    compared = {} if engines is None else {"engine": [name.strip() for name in engines.split(",")]}
    axes = {"problem": problems, **compared, **further, "seed": sweep_table.parsed_seeds(seeds)}
    outcomes = run_sweep(grid(profile, **axes), out, workers)
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
