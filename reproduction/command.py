"""What `python -m reproduction` prints, and its exit codes."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table as ScreenTable

from dudx.errors import InputError
from dudx.lab.sweep import suggested_workers
from reproduction import runner
from reproduction.experiments import Experiment, experiments
from reproduction.experiments.profile import Profile, load

console = Console(markup=False, emoji=False)


def titles() -> dict[str, str]:
    """The experiments, and what they are."""
    return {name: experiment.title for name, experiment in experiments().items()}


@dataclass(frozen=True)
class Choice:
    """What to reproduce, and how large."""

    names: list[str]
    every: bool
    profile_name: str
    device: str | None

    @property
    def folder(self) -> Path:
        """Where the results go, unless it is said."""
        return Path("results") / Path(self.profile_name).stem

    @property
    def experiments(self) -> list[Experiment]:
        if bool(self.names) == self.every:
            raise InputError(
                "Name the experiments to reproduce, or give --all; python -m reproduction --list lists them."
            )
        return runner.chosen(self.names or list(experiments()))

    @property
    def profile(self) -> Profile:
        return load(self.profile_name, self.device)


def redraw(names: list[str], folder: Path, out: Path) -> None:
    """Make tables and figures of data."""
    experiments = runner.chosen(names) if names else runner.with_data(folder)
    for path in runner.from_data(experiments, folder, out):
        console.print(f"Written: {path}")


def run(
    choice: Choice, out: Path, workers: int | None, ray: str | None, gpus_per_run: float, shown: bool = False
) -> int:
    """Reproduce; the exit code is 0 if all went well, 3 if a run diverged or failed, 130 if it was stopped."""
    done = runner.reproduce(choice.experiments, choice.profile, out, workers, ray, gpus_per_run, shown)
    for path in done.written:
        console.print(f"Written: {path}")
    for name, reason in done.failed.items():
        print(f"dudx: {name} did not finish: {reason}", file=sys.stderr)
    if done.incomplete and shown:
        print(f"dudx: left as they are, for want of runs: {', '.join(done.incomplete)}.", file=sys.stderr)
    elif done.incomplete:
        missing = ", ".join(done.incomplete)
        verb = "was" if len(done.incomplete) == 1 else "were"
        print(f"dudx: stopped before {missing} {verb} complete; the same command goes on.", file=sys.stderr)
        return 130
    return 3 if done.failed else 0


def show_plan(choice: Choice, out: Path, workers: int | None) -> int:
    """Print what would be done and how long it takes."""
    from reproduction.estimates import estimate

    experiments, profile = choice.experiments, choice.profile
    plan = estimate(experiments, profile, out)
    table = ScreenTable(
        "experiment", "what", title=f"Profile {choice.profile_name}, from a few steps of each on this machine"
    )
    for column in ("pieces", "left", "s each", "s in all"):
        table.add_column(column, justify="right")
    for line in plan.lines:
        table.add_row(
            line.experiment, line.what, str(line.count), str(line.left), f"{line.seconds:.1f}", f"{line.total:.0f}"
        )
    for experiment in experiments:
        mine = [line.total for line in plan.lines if line.experiment == experiment.name]
        table.add_row(experiment.name, "all of it", "", "", "", f"{sum(mine):.0f}", style="bold")
    console.print(table)
    count = workers or suggested_workers([run for experiment in experiments for run in experiment.runs(profile)])
    console.print(
        f"In all {plan.runs:.0f} core-seconds of training and {plan.measurements:.0f} s of measurements: about "
        f"{_time(plan.wall(count))} with {count} worker{'s' * (count > 1)}. Work that experiments share is counted "
        "with the first."
    )
    return 0


def _time(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
