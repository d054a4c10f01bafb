"""The command line: every error is one sentence and an exit code that is not zero."""

from __future__ import annotations

import sys
from dataclasses import astuple, fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dudx.errors import DudxError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Solve differential equations with neural networks, and choose how their derivatives are computed.",
)
console = Console()


def main() -> None:
    """The entry point: errors raised on purpose, and those of the file system, become one sentence."""
    try:
        app()
    except (DudxError, OSError) as error:
        print(f"dudx: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("dudx: stopped.", file=sys.stderr)
        sys.exit(130)


ProblemName = Annotated[str, typer.Argument(help="poisson, burgers, heat, or your own as package.module:function")]
EngineName = Annotated[str | None, typer.Option(help="how derivatives are computed; see `dudx engines`")]
Profile = Annotated[str, typer.Option(help="defaults to start from: cpu, paper, smoke, or a .toml file of your own")]
Seed = Annotated[int | None, typer.Option(help="decides the network's start, the points and the random steps")]


@app.command()
def train(
    problem: ProblemName,
    out: Annotated[Path, typer.Option(help="the run's folder")],
    profile: Profile = "cpu",
    engine: EngineName = None,
    epochs: Annotated[int | None, typer.Option(help="optimizer steps, each on new points")] = None,
    batch: Annotated[int | None, typer.Option(help="points in the interior per step")] = None,
    seed: Seed = None,
    network: Annotated[str | None, typer.Option(help="mlp, batchnorm or attention")] = None,
    width: Annotated[int | None, typer.Option(help="neurons in a hidden layer")] = None,
    depth: Annotated[int | None, typer.Option(help="hidden layers")] = None,
    optimizer: Annotated[str | None, typer.Option(help="adam, soap, or package.module:Class")] = None,
    learning_rate: Annotated[float | None, typer.Option()] = None,
    lbfgs_epochs: Annotated[int | None, typer.Option(help="a second phase of L-BFGS of this many epochs")] = None,
    recalibrate: Annotated[int | None, typer.Option(help="epochs between calibrations of the step")] = None,
    reference: Annotated[Path | None, typer.Option(help="a COMSOL data file to score against in addition")] = None,
    compile: Annotated[bool | None, typer.Option(help="use torch.compile; pays off in long runs")] = None,
    chunk: Annotated[str | None, typer.Option(help="points at once: a number, auto, or whole")] = None,
    coupled: Annotated[
        str | None, typer.Option(help="samples that influence each other: isolate them, or ignore it, which is wrong")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads")] = None,
    tensorboard: Annotated[bool | None, typer.Option(help="write TensorBoard events too")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on from the folder's checkpoint")] = False,
) -> None:
    """Solve a problem and leave the solution, its error and pictures in a folder.

    Example: dudx train poisson --engine sfd --out runs/poisson
    """
    from dudx.lab import plots
    from dudx.lab.run import distributed, training
    from dudx.lab.run.settings import make_settings

    options: dict[str, Any] = {
        "engine": engine,
        "epochs": epochs,
        "batch": batch,
        "seed": seed,
        "network": network,
        "width": width,
        "depth": depth,
        "optimizer": optimizer,
        "learning_rate": learning_rate,
        "lbfgs_epochs": lbfgs_epochs,
        "recalibrate": recalibrate,
        "reference_file": str(reference) if reference else None,
        "device": device,
        "threads": threads,
        "compile": compile,
        "chunk": int(chunk) if chunk and chunk.isdecimal() else chunk,
        "coupled": coupled,
        "tensorboard": tensorboard,
    }
    settings = training.settings_of(out, options) if resume else make_settings(problem, profile, **options)
    if settings.problem != problem:
        raise training.InputError(f"The run in {str(out)!r} is of the problem {settings.problem!r}, not {problem!r}.")
    result = (distributed if distributed.launched() else training).train(settings, out, resume=resume)
    if not distributed.first():
        raise typer.Exit({"finished": 0, "diverged": 3, "interrupted": 130}[result["status"]])
    _show_result(result, out, plots.plot_run(out))
    if result["status"] == "diverged":
        print(
            f"dudx: the loss is not finite after epoch {result['diverged_at']}; try a smaller learning rate.",
            file=sys.stderr,
        )
        raise typer.Exit(3)
    if result["status"] == "interrupted":
        print(f"dudx: stopped at epoch {result['epochs']}; go on with --resume --out {out}.", file=sys.stderr)
        raise typer.Exit(130)


def _show_result(result: dict[str, Any], out: Path, pictures: list[Path]) -> None:
    table = Table(title=f"{result['problem']} with {result['engine']}, {result['status']}", show_header=False)
    for key, value in (
        ("relative L2", _percent(result["l2_relative"])),
        ("SMAPE", "-" if result["smape"] is None else f"{result['smape']:.2f} %"),
        ("max error", "-" if result["max_error"] is None else f"{result['max_error']:.4f}"),
        ("epochs", str(result["epochs"])),
        ("time", f"{result['seconds']:.1f} s"),
        *((f"{name} (found)", f"{value:.6g}") for name, value in result.get("unknowns", {}).items()),
        *((f"{name}, data file", f"{value:.4g}") for name, value in result.get("file_reference", {}).items()),
        ("folder", str(out)),
        ("pictures", ", ".join(path.name for path in pictures)),
    ):
        table.add_row(key, value)
    console.print(table)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


@app.command()
def sweep(
    problems: Annotated[list[str], typer.Argument(help="one or more problems, named as for `dudx train`")],
    out: Annotated[Path, typer.Option(help="holds a folder for each run, and sweep.csv")],
    engines: Annotated[str | None, typer.Option(help="engines, separated by commas; else the profile's")] = None,
    seeds: Annotated[str, typer.Option(help="seeds: 0-4, or 0,1,2")] = "0-4",
    profile: Profile = "cpu",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="any other setting, KEY=VALUE; several values are an axis")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="runs at the same time; by default, what the cores allow")] = None,
    ray: Annotated[str | None, typer.Option(help="auto or an address: run on a Ray cluster; local starts one")] = None,
    gpus_per_run: Annotated[float, typer.Option(help="with --ray, each run's share of a GPU, 0 to 1")] = 0.0,
) -> None:
    """Run problems × engines × seeds, and compare. Stop it at any time; the same command goes on.

    Example: dudx sweep poisson heat --engines ad,fd,sfd --seeds 0-4 --out runs/compare
    """
    from dudx.lab.sweep import grid, run_sweep, table

    further = table.parsed_axes(set_ or [])
    if gpus_per_run:
        further.setdefault("device", "cuda")
    compared = {"engine": engines.split(",")} if engines else {}
    axes = {"problem": problems, **compared, **further, "seed": table.parsed_seeds(seeds)}
    outcomes = run_sweep(grid(profile, **axes), out, workers, ray, gpus_per_run)
    table.write_csv(out / "sweep.csv", outcomes)
    varied = [key for key, values in further.items() if isinstance(values, list)]
    console.print(table.shown(outcomes, ["problem", "engine", *varied]))
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


@app.command()
def calibrate(
    problem: ProblemName,
    out: Annotated[Path | None, typer.Option(help="a picture of the error curves, .png or .pdf")] = None,
    run: Annotated[
        Path | None, typer.Option(help="calibrate on this run's trained network, not on a fresh one")
    ] = None,
    profile: Profile = "cpu",
    seed: Seed = None,
    candidates: Annotated[int | None, typer.Option(help="how many steps are tried")] = None,
) -> None:
    """Search the best finite-difference step for each derivative order of a problem and print it.

    Example: dudx calibrate burgers --out curve.png
    """
    from dudx.lab import plots
    from dudx.lab.run import training
    from dudx.lab.run.settings import make_settings

    options = {"seed": seed, "calibration_candidates": candidates, "engine": "efd"}
    found = training.calibrate(make_settings(problem, profile, **options), run)
    table = Table(title=f"Best steps for {problem}")
    for column in ("order", "step", "RMSE", "max error"):
        table.add_column(column, justify="right")
    for search in found:
        table.add_row(
            str(search["order"]),
            f"{search['step']:.2e}",
            f"{min(search['rmse']):.2e}",
            f"{min(search['max_error']):.2e}",
        )
    console.print(table)
    if out:
        plots.calibration(out, found)
        console.print(f"The error curves are in {out}.")


@app.command()
def reference(
    name: Annotated[str, typer.Argument(help="poisson, burgers or heat")],
    rebuild: Annotated[bool, typer.Option("--rebuild", help="compute it again and show how it converges")] = False,
) -> None:
    """Show what is known of a reference solution, or compute it again."""
    from dudx.lab.problems import references

    if rebuild:
        table = Table(title=f"Refinement of {name}")
        rows = references.refinement_table(name)
        for column in fields(rows[0]):
            table.add_column(column.name, justify="right")
        for row in rows:
            table.add_row(*(_short(value) for value in astuple(row)))
        console.print(table)
        written = references.rebuild(name)
        console.print(f"Written: {written}" if written else f"{name} is a formula; there is no file to write.")
    solution = references.reference(name)
    values = solution.values
    console.print(f"{name}: {len(values)} values from {values.min():.4g} to {values.max():.4g}.")


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)


@app.command()
def engines() -> None:
    """List the ways to compute derivatives."""
    from dudx.lab.run.engines import ENGINES

    _list_names("engine", {name: what for name, (what, _) in ENGINES.items()})


@app.command()
def problems() -> None:
    """List the problems."""
    from dudx.lab.problems import PROBLEMS

    _list_names("problem", {name: make().title for name, make in PROBLEMS.items()})


def _list_names(kind: str, table: dict[str, str]) -> None:
    shown = Table(kind, "what it is")
    for name, what in table.items():
        shown.add_row(name, what)
    console.print(shown)


@app.command()
def plot(run: Annotated[Path, typer.Argument(help="the folder of a run")]) -> None:
    """Draw the pictures of a run again."""
    from dudx.lab import plots

    for path in plots.plot_run(run):
        console.print(f"Drawn: {path}")


@app.command()
def doctor(
    network: Annotated[str, typer.Argument(help="package.module:factory, a module that is there, or mlp, batchnorm …")],
    points: Annotated[int, typer.Option(help="random points in the batch")] = 64,
    inputs: Annotated[int | None, typer.Option(help="variables; else those of the first Linear layer")] = None,
    low: Annotated[float, typer.Option(help="the least value of every variable")] = -1.0,
    high: Annotated[float, typer.Option(help="the largest value of every variable")] = 1.0,
    seed: Annotated[int, typer.Option(help="decides the network's start and the points")] = 0,
    evaluation: Annotated[bool, typer.Option("--eval", help="look at evaluation mode")] = False,
) -> None:
    """Tell whether the samples of a network influence each other, in which layers, and what to do.

    The exit code is 0 if samples are independent, 4 if they influence each other, 1 for an error.

    Example: dudx doctor mypackage.networks:make --inputs 3
    """
    from dudx.lab.doctor import examine

    explanation = examine(network, points, inputs, low, high, seed, evaluation)
    print(explanation)
    if explanation.coupled:
        raise typer.Exit(4)


@app.command()
def reproduce(
    experiments: Annotated[list[str] | None, typer.Argument(help="names of experiments; see --list")] = None,
    out: Annotated[
        Path | None, typer.Option(help="the folder of runs, data, tables and figures; results/PROFILE by default")
    ] = None,
    profile: Annotated[str, typer.Option(help="how large: cpu, paper, smoke, or a .toml file of your own")] = "cpu",
    every: Annotated[bool, typer.Option("--all", help="all experiments")] = False,
    list_: Annotated[bool, typer.Option("--list", help="list the experiments")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="only say what would be run, and how long it takes here")
    ] = False,
    from_data: Annotated[
        Path | None, typer.Option(help="make tables and figures of the data in this folder; nothing is trained")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="runs at the same time; by default, what the cores allow")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda")] = None,
    ray: Annotated[str | None, typer.Option(help="auto or an address: run on a Ray cluster; local starts one")] = None,
    gpus_per_run: Annotated[float, typer.Option(help="with --ray, each run's share of a GPU, 0 to 1")] = 0.0,
) -> None:
    """Run the paper's experiments and put our tables and figures beside the published numbers.

    Stop it at any time; the same command goes on.

    Example: dudx reproduce table-poisson fig-4 --profile cpu
    """
    from dudx.lab.paper.reproduction import command

    if list_:
        _list_names("experiment", command.titles())
    elif from_data is not None:
        command.redraw(experiments or [], from_data, out or from_data)
    else:
        chosen = command.Choice(experiments or [], every, profile, device or ("cuda" if gpus_per_run else None))
        folder = out or chosen.folder
        if plan:
            code = command.show_plan(chosen, folder, workers)
        else:
            code = command.run(chosen, folder, workers, ray, gpus_per_run)
        raise typer.Exit(code)


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="the folder of a reproduction")]) -> None:
    """Write a report of a reproduction, as Markdown and as one HTML page: what held, every table and figure.

    Example: dudx report results/cpu
    """
    from dudx.lab.paper.report import write_report

    for path in write_report(folder):
        console.print(f"Written: {path}")


if __name__ == "__main__":
    main()
