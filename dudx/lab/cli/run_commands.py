"""The commands for one run: train and plot."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as ScreenTable

from dudx.errors import InputError, percent
from dudx.lab.cli.options import with_settings
from dudx.lab.cli.program import (
    SOLVE,
    ProblemName,
    app,
    console,
    folder_option,
)

if TYPE_CHECKING:
    from dudx.lab.problems import Problem

#: Reasons for ending a run before its last epoch.
_STOPPED = {"settled": "the loss on fresh points has settled", "seconds": "the CPU seconds are used up"}


@app.command(rich_help_panel=SOLVE)
@with_settings
def train(
    problem: ProblemName,
    out: Annotated[Path, folder_option("the run's folder")],
    options: dict[str, Any],
    profile: Annotated[
        str | None, typer.Option("--profile", help="defaults to start from: cpu, or auto for a problem of your own")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="resume from the folder's checkpoint")] = False,
) -> None:
    """Solve a problem and write the solution, its error and pictures to a folder.

    Example: dudx train poisson --engine sfd --out runs/poisson
    """
    from dudx.lab.problems import problem as problem_named
    from dudx.lab.problems import problems
    from dudx.lab.run import training
    from dudx.lab.run.folder import settings_of
    from dudx.lab.run.settings import make_settings

    if profile is None:
        profile = "cpu" if problem in problems() else "auto"
    settings = settings_of(out, options) if resume else make_settings(problem, profile, **options)
    if settings.problem != problem:
        raise InputError(f"The run in {str(out)!r} is of the problem {settings.problem!r}, not {problem!r}.")
    result = training.train(settings, out, resume=resume)
    _show_result(result, out, _pictures(out, problem_named(problem), problem))
    if result["status"] == "diverged":
        print(
            f"dudx: the loss is not finite after epoch {result['diverged_at']}; try a smaller learning rate.",
            file=sys.stderr,
        )
        raise typer.Exit(3)
    if result["status"] == "interrupted":
        print(f"dudx: stopped at epoch {result['epochs']}; resume it with --resume --out {out}.", file=sys.stderr)
        raise typer.Exit(130)


def _pictures(folder: Path, problem: Problem, name: str) -> list[Path]:
    """Draw the pictures of a run; without a reference, the solution beside its residual."""
    from dudx.lab import plots
    from dudx.lab.run.records import TRAINED
    from dudx.lab.solving import Solution

    drawn, picture = plots.draw(folder, problem, name), folder / "solution.png"
    if picture not in drawn and (folder / TRAINED).exists():
        Solution.load(folder, problem).plot(picture)
        drawn.insert(0, picture)
    return drawn


def _show_result(result: dict[str, Any], out: Path, pictures: list[Path]) -> None:
    table = ScreenTable(title=f"{result['problem']} with {result['engine']}, {result['status']}", show_header=False)
    for key, value in (
        *([("relative L2", percent(result["l2_relative"]))] if result["l2_relative"] is not None else []),
        *([("estimated", _estimated(result["estimate"]))] if "estimate" in result else []),
        *([("max error", f"{result['max_error']:.2g}")] if result["max_error"] is not None else []),
        *([("SMAPE", f"{percent(result['smape'] / 100)} (200 % where the reference is 0)")] if result["smape"] else []),
        ("epochs", str(result["epochs"])),
        *([("stopped", _STOPPED[result["stopped"]])] if result.get("stopped", "epochs") != "epochs" else []),
        ("time", f"{result['seconds']:.1f} s"),
        *((f"{name} (found)", f"{value:.6g}") for name, value in result.get("unknowns", {}).items()),
        *((f"{name}, data file", f"{value:.4g}") for name, value in result.get("file_reference", {}).items()),
        ("folder", str(out)),
        ("pictures", ", ".join(path.name for path in pictures)),
    ):
        table.add_row(key, value)
    console.print(table)


def _estimated(found: dict[str, Any] | None) -> str:
    return (
        "not available for coupled networks" if found is None else found.get("reason") or percent(found["relative_l2"])
    )


@app.command(rich_help_panel=SOLVE)
def plot(
    run: Annotated[Path, typer.Argument(help="the folder of a run")],
    problem: Annotated[
        str | None, typer.Option(help="the run's problem if it is your own, package.module:function, which is imported")
    ] = None,
) -> None:
    """Draw the pictures of a run again, without importing code that its folder names."""
    from dudx.lab import plots
    from dudx.lab.problems import problem as problem_named
    from dudx.lab.run.folder import settings_of

    if problem is None:
        drawn = plots.plot_run(run)
    else:
        drawn = _pictures(run, problem_named(settings_of(run, {"problem": problem}).problem), problem)
    for path in drawn:
        console.print(f"Drawn: {path}")
