"""Compare runs stored in any folders: their differing settings, errors and times."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from dudx.errors import InputError
from dudx.lab.plots import COLOURS, figure
from dudx.lab.run.folder import stored_settings
from dudx.lab.run.metrics import percent
from dudx.lab.run.records import CONFIG, METRICS, read_metrics
from dudx.lab.run.settings import Settings
from dudx.lab.sweep.sweep_run import Outcome, Run, outcome

#: Settings that do not tell runs apart: seeds, and the intervals of records.
_NOT_COMPARED = {"seed", "evaluate_every", "log_every", "checkpoint_every", "estimate"}

#: A run's folder and its outcome.
Found = tuple[Path, Outcome]


def found_in(folders: Iterable[Path]) -> list[Found]:
    """Return the runs in these folders, each the folder of a run or of a sweep. No user code is imported."""
    found: list[Found] = []
    for folder in folders:
        here = [folder] if (folder / CONFIG).exists() else sorted(path.parent for path in folder.glob(f"*/{CONFIG}"))
        if not here:
            raise InputError(f"There is no run in {str(folder)!r}, nor in the folders in it.")
        found += [(path, outcome(Run(path.name, stored_settings(path)), path)) for path in here]
    if len({path.resolve() for path, _ in found}) < len(found):
        raise InputError("A run is named twice; name each once.")
    return found


def differing(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the settings in which the runs differ, after problem and engine."""
    others = [key for key in Settings.model_fields if key not in ("problem", "engine", *_NOT_COMPARED)]
    return ["problem", "engine"] + [
        key for key in others if len({repr(getattr(o.settings, key)) for o in outcomes}) > 1
    ]


def draw(path: Path, found: Sequence[Found], keys: Sequence[str]) -> None:
    """Draw each run's final error, grouped over seeds, and its error over time."""
    groups = _grouped(found, keys)
    shown = [position for position, _ in enumerate(keys) if len({values[position] for values in groups}) > 1]
    with figure(path, 2, (11, 1.6 + 0.32 * max(8, len(groups)))) as (dots, ways):
        for row, members in enumerate(groups.values()):
            colour = COLOURS[row % len(COLOURS)]
            errors = [error for _, run in members if (error := _error(run)) is not None]
            dots.plot(errors, [row] * len(errors), "o", color=colour, alpha=0.6)
            if errors:
                dots.plot(statistics.median(errors), row, "|", color=colour, markersize=18, markeredgewidth=2)
            for folder, _ in members:
                seconds, seen = _way(folder)
                ways.plot(seconds, seen, color=colour, linewidth=1.2)
        names = [", ".join(values[position] for position in shown) or values[1] for values in groups]
        dots.set(xscale="log", xlabel="relative L2 error; a dot per run, a bar per median", yticks=range(len(names)))
        dots.set_yticklabels(names)
        dots.invert_yaxis()
        ways.set(xscale="log", yscale="log", xlabel="seconds", ylabel="relative L2 error")


def table(found: Sequence[Found], keys: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows: median and range of the errors over the seeds."""
    rows = []
    for values, entries in _grouped(found, keys).items():
        members = [run for _, run in entries]
        errors = sorted(error for run in members if (error := _error(run)) is not None)
        seconds = [run.result["seconds"] for run in members if run.result is not None]
        lost = [run.status for run in members if run.status != "finished"]
        rows.append(
            [
                *values,
                percent(statistics.median(errors)) if errors else "-",
                f"{percent(errors[0])} to {percent(errors[-1])}" if len(errors) > 1 else "-",
                f"{statistics.median(seconds):.1f}" if seconds else "-",
                str(len(members) - len(lost)),
                ", ".join(f"{lost.count(status)} {status}" for status in dict.fromkeys(lost)) or "-",
            ]
        )
    return [*keys, "relative L2", "from, to", "s per run", "finished", "others"], rows


def _grouped(found: Sequence[Found], keys: Sequence[str]) -> dict[tuple[str, ...], list[Found]]:
    """Group runs by their values of these settings."""
    groups: dict[tuple[str, ...], list[Found]] = {}
    for entry in found:
        groups.setdefault(tuple(str(getattr(entry[1].settings, key)) for key in keys), []).append(entry)
    return groups


def _error(run: Outcome) -> float | None:
    return run.result["l2_relative"] if run.status == "finished" and run.result is not None else None


def _way(folder: Path) -> tuple[list[float], list[float]]:
    """Return the times in seconds and errors that a run recorded."""
    rows = read_metrics(folder) if (folder / METRICS).exists() else []
    seen = [row for row in rows if row.get("l2_relative") and row.get("seconds")]
    return [float(row["seconds"]) for row in seen], [float(row["l2_relative"]) for row in seen]
