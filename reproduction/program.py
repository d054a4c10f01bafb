"""`python -m reproduction`: run the paper's experiments, and report on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dudx.lab.cli import run_program
from dudx.lab.cli.program import Commands, GpuShare, RayAddress, Workers, console, folder_option, show_names
from dudx.lab.run.settings import Settings

app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)


@app.command()
def reproduce(
    experiments: Annotated[list[str] | None, typer.Argument(help="names of experiments; see --list")] = None,
    out: Annotated[
        Path | None, folder_option("the folder of runs, data, tables and figures; results/PROFILE by default")
    ] = None,
    profile: Annotated[
        str, typer.Option(help="how large: cpu, protocol, paper, soap, smoke, or a .toml file of your own")
    ] = "cpu",
    every: Annotated[bool, typer.Option("--all", help="all experiments")] = False,
    list_: Annotated[bool, typer.Option("--list", help="list the experiments")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="only say what would be run, and how long it takes here")
    ] = False,
    shown: Annotated[
        bool, typer.Option("--shown", help="run nothing; make tables and figures of the runs that are there")
    ] = False,
    report: Annotated[
        Path | None, folder_option("write the report of this folder, as Markdown and HTML; nothing is trained")
    ] = None,
    from_data: Annotated[
        Path | None, folder_option("make tables, figures and report of the data in this folder; nothing is trained")
    ] = None,
    workers: Workers = None,
    device: Annotated[str | None, typer.Option(help=Settings.model_fields["device"].description)] = None,
    ray: RayAddress = None,
    gpus_per_run: GpuShare = 0.0,
) -> None:
    """Run the paper's experiments and put our tables and figures beside the published numbers.

    Stop it at any time; the same command goes on.

    Example: python -m reproduction table-poisson fig-4 --profile cpu
    """
    from reproduction import command
    from reproduction.report import redraw, several, write_report

    if report is not None:
        for path in write_report(report):
            console.print(f"Written: {path}")
    elif list_:
        show_names("experiment", command.titles())
    elif from_data is not None and not experiments and several(from_data):
        for path in redraw(from_data, out or from_data):
            console.print(f"Written: {path}")
    elif from_data is not None:
        command.redraw(experiments or [], from_data, out or from_data)
    else:
        device = "cuda" if device is None and gpus_per_run else device
        chosen = command.Choice(experiments or [], every, profile, device)
        folder = out or chosen.folder
        if plan:
            code = command.show_plan(chosen, folder, workers)
        else:
            code = command.run(chosen, folder, workers, ray, gpus_per_run, shown)
        raise typer.Exit(code)


def main() -> None:
    """Run the program."""
    run_program(app)
