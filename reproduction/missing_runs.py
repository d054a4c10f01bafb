"""The planned runs that have not been made, by name, with the commands that make them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reproduction import runner
from reproduction.analysis import run_rows
from reproduction.analysis.tables import Table
from reproduction.experiment import ExperimentResults
from reproduction.experiments import experiments
from reproduction.profile import load


def missing_table(wanted: Iterable[tuple[str, str]], found: Mapping[tuple[str, str], ExperimentResults]) -> Table:
    """Return the missing runs of experiments, each run once.

    Args:
        wanted: profiles and names of experiments.
        found: results by profile and experiment; those that are not there have no run yet.
    """
    lines, listed, total = [], set[tuple[str, str]](), 0
    for profile, name in dict.fromkeys(wanted):
        loaded, experiment = load(profile), experiments()[name]
        if (profile, name) in found:
            rows = list(found[profile, name].runs)
        else:
            rows = [runner.run_row(run, None) for run in experiment.runs(loaded)]
        folder = loaded.results or profile
        fresh = [row for row in run_rows.where(rows, status="missing") if (folder, row["name"]) not in listed]
        listed |= {(folder, row["name"]) for row in fresh}
        if fresh:
            # All rows, so that runs are named by what the runs of the experiment differ in.
            names = {row["name"] for row in fresh}
            shown = [row if row["name"] in names else {**row, "status": "known"} for row in rows]
            (words,) = run_rows.missing_note(shown)
            command = f"`python -m reproduction {name} --profile {profile}`"
            lines.append([name, profile, words.removeprefix("Missing runs: ").rstrip("."), command, str(len(fresh))])
            total += len(fresh)
    note = f"{total} planned runs are missing. A run that several experiments need is listed once."
    columns = ["experiment", "profile", "runs", "made by", "count"]
    return Table("Runs that were planned and have not been made.", columns, lines, [note], words=4)
