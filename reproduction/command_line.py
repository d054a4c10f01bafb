"""Command `python -m reproduction`: runs the paper's experiments, and draws tables, figures and the report."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from dudx.errors import InputError
from dudx.lab.cli import run_program
from dudx.lab.cli.program import Commands, Workers, console, folder_option, show_names
from dudx.lab.run.settings import Settings
from reproduction import report, runner
from reproduction.experiment import Experiment, ExperimentResults
from reproduction.experiments import experiments
from reproduction.profile import load
from reproduction.result_store import ResultStore
from reproduction.suite_scores import suite_data

#: Result tables by profile, and the page of the documentation that the report is written to.
RESULTS, PAGE = Path("results"), Path("docs") / "report.md"

app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)


@app.command()
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="names of experiments; see --list")] = None,
    profile: Annotated[
        str, typer.Option(help="settings and sizes: cpu, protocol, paper, smoke, …, or a .toml file of your own")
    ] = "cpu",
    out: Annotated[
        Path | None, folder_option("folder of results, tables and figures; results/PROFILE by default")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="all experiments")] = False,
    list_: Annotated[bool, typer.Option("--list", help="list the experiments")] = False,
    collect: Annotated[
        bool, typer.Option("--collect", help="run nothing; add the runs that have finished, and draw what there is")
    ] = False,
    from_data: Annotated[
        bool,
        typer.Option(
            "--from-data", help="run nothing; draw all tables and figures of all profiles, and write the report"
        ),
    ] = False,
    import_: Annotated[
        Path | None, typer.Option("--import", help="add the finished runs in this folder of run folders to the results")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="folder of the benchmark suite's data files (PINNacle's ref): score the networks in the run folders "
            "at its nodes, too"
        ),
    ] = None,
    workers: Workers = None,
    device: Annotated[str | None, typer.Option(help=Settings.model_fields["device"].description)] = None,
) -> None:
    """Run the paper's experiments and put our tables and figures beside the published numbers.

    Stop it at any time; the same command continues.

    Example: python -m reproduction table-poisson fig-4 --profile cpu
    """
    if list_:
        show_names("experiment", {name: experiment.title for name, experiment in experiments().items()})
    elif import_ is not None:
        _import(import_, profile, out, data)
    elif from_data and data is not None:
        raise InputError("--data scores networks in run folders; give it with --import, with --collect or with a run.")
    elif from_data:
        _draw(_selected(names or [], not names), None if out is None else (profile, out))
    else:
        loaded = load(profile, device)
        done = runner.reproduce(
            _selected(names or [], every),
            loaded,
            out or RESULTS / (loaded.results or Path(profile).stem),
            workers,
            collect,
            out or RESULTS / Path(profile).stem,
            data,
        )
        raise typer.Exit(_summarise(done, collect))


def _selected(names: Sequence[str], every: bool) -> list[Experiment]:
    if bool(names) == every:
        raise InputError("Name the experiments to reproduce, or give --all; python -m reproduction --list lists them.")
    return runner.chosen(names or list(experiments()))


def _summarise(done: runner.Done, collect: bool) -> int:
    """Print what was done; the exit code is 0, 3 if a run diverged or failed, or 130 if the work was stopped."""
    _print_written(done.written)
    for name, reason in done.failed.items():
        print(f"dudx: {name} did not finish: {reason}", file=sys.stderr)
    if done.incomplete and collect:
        print(f"dudx: not drawn, as there are no results: {', '.join(done.incomplete)}.", file=sys.stderr)
    elif done.incomplete:
        missing = ", ".join(done.incomplete)
        verb = "was" if len(done.incomplete) == 1 else "were"
        print(f"dudx: stopped before {missing} {verb} complete; the same command goes on.", file=sys.stderr)
        return 130
    return 3 if done.failed else 0


def _print_written(paths: Sequence[Path]) -> None:
    for path in paths:
        console.print(f"Written: {path}")


def _import(folder: Path, name: str, out: Path | None, data: Path | None) -> None:
    profile, suite = load(name), None if data is None else suite_data(data)
    if not folder.is_dir():
        raise InputError(f"There is no folder {str(folder)!r}.")
    target = out or RESULTS / (profile.results or Path(name).stem)
    with runner.sole_user(target):
        store = ResultStore(target)
        count = store.import_runs(folder, runner.needing_prediction(profile))
        scored = 0 if suite is None else store.score_by_suite(sorted(folder.glob("*/")), suite)
    console.print(f"Added {count} run{'s' * (count != 1)} to {target / 'runs.csv'}.")
    if suite is not None:
        console.print(f"Scored {scored} network{'s' * (scored != 1)} at the suite's nodes.")


def _draw(chosen: Sequence[Experiment], own: tuple[str, Path] | None) -> None:
    """Draw all profiles and the report of the documentation, or those of a folder of one's own."""
    if own is not None:
        name, folder = own
        found, written = runner.draw_from_results(chosen, load(name), folder, folder)
        if not found:
            raise InputError(f"There are no results of {_named(chosen)} in {str(folder)!r}.")
        text = report.markdown(report.report_of_profile(name, found), _picture)
        _print_written([*written, *[folder / "report.md"] * runner.write(folder / "report.md", text.encode())])
        return
    every = draw_profiles(chosen)
    if not every:
        raise InputError(f"There are no results of {_named(chosen)} in {str(RESULTS)!r}.")
    if len(chosen) == len(experiments()):
        _print_written([PAGE] * runner.write(PAGE, page(every).encode()))


def draw_profiles(
    chosen: Sequence[Experiment], results: Path = RESULTS, drawn: Path = RESULTS
) -> dict[tuple[str, str], ExperimentResults]:
    """Draw the tables and figures of the report; the results by profile and experiment.

    Args:
        chosen: experiments to draw.
        results: folder of the profiles' results.
        drawn: folder of the profiles' tables and figures.
    """
    every = {}
    for name in dict.fromkeys(name for _, _, wanted in report.PARTS for name, _ in wanted):
        shown = {experiment for _, _, wanted in report.PARTS for other, experiment in wanted if other == name}
        profile = load(name)
        mine = [experiment for experiment in chosen if experiment.name in shown]
        found, written = runner.draw_from_results(mine, profile, results / (profile.results or name), drawn / name)
        every |= {(name, experiment): each for experiment, each in found.items()}
        _print_written(written)
    return every


def page(found: Mapping[tuple[str, str], ExperimentResults]) -> str:
    """Return the report as a page of the documentation."""
    return report.markdown(report.whole_report(found), _page_picture)


def _named(chosen: Sequence[Experiment]) -> str:
    return repr(chosen[0].name) if len(chosen) == 1 else "these experiments"


def _picture(source: report.ReportSource) -> str:
    return f"![{source.title}](figures/{source.experiment.name}.png)"


def _page_picture(source: report.ReportSource) -> str:
    """Figure as the documentation site shows it; figures are drawn before the site is built, and are not tracked."""
    path = Path("..") / RESULTS / source.profile / "figures" / f"{source.experiment.name}.png"
    return f":::{{figure}} {path.as_posix()}\n:alt: {source.title}\n:::"


def main() -> None:
    """Run the command."""
    run_program(app)
