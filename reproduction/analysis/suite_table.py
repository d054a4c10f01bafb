"""Table of errors on the paper's footing: at the benchmark suite's nodes, against its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dudx.errors import mean_percent, percent
from dudx.lab.run.engine_table import in_table_order
from reproduction.analysis import run_rows
from reproduction.analysis.published import published
from reproduction.analysis.tables import Table, as_published, in_percent, spread

_HEADINGS = ("SMAPE (%)", "published", "L2 relative (%)", "published", "max error", "published", "scored")


def suite_tables(
    rows: Sequence[Mapping[str, Any]], problem: str, title: str, label: Callable[[str, str], str]
) -> list[Table]:
    """Return the table of the runs that were scored by the suite's data; none if there are none.

    Args:
        rows: runs of one problem; `suite` has the scores by the suite's data, or None.
        problem: its name.
        title: its title in tables.
        label: returns the label of an engine in the table of a problem.
    """
    scored = [row["suite"] for row in rows if row.get("suite") is not None]
    if not scored:
        return []
    theirs, lines = published(f"table-{problem}"), []
    for engine in in_table_order(row["engine"] for row in rows):
        mine = run_rows.where(rows, engine=engine)
        found = [row["suite"] for row in mine if row.get("suite") is not None]
        values = {key: [each[key] for each in found] for key in ("smape", "l2_relative", "max_error")}
        of_engine = theirs.get(engine, {})
        lines.append(
            [
                label(problem, engine),
                spread(values["smape"], 2),
                as_published(of_engine.get("smape"), 2),
                in_percent(values["l2_relative"]),
                as_published(of_engine.get("l2_relative"), 2),
                spread(values["max_error"], 3),
                as_published(of_engine.get("max_error"), 3),
                f"{len(found)} of {len(mine)}",
            ]
        )
    facts = scored[0]
    notes = [
        f"Scored at the {facts['nodes']} nodes of the suite's data file and against its values, with `--data`. By that "
        f"file our own reference has an error of {percent(facts['reference'])}. Networks of earlier runs were not "
        "kept, so not all runs are scored."
    ]
    zeros = facts["zeros"]
    if zeros:
        notes.append(
            f"SMAPE: {percent(facts['zeros'])} of these values are exactly 0 and count 200 % each, so that any network "
            f"scores {percent(2 * zeros)} or more, and {percent(zeros)} or more by the definition without the factor "
            f"of 2.{_other_definition(theirs, zeros)}"
        )
    return [Table(f"{title} on the paper's footing, mean ± standard deviation.", ["method", *_HEADINGS], lines, notes,
                  name="suite")]  # fmt: skip


def _other_definition(theirs: Mapping[str, Mapping[str, Sequence[float]]], zeros: float) -> str:
    """Return a sentence if the published SMAPE is less than what these nodes allow, by the usual definition."""
    found = [values["smape"][0] / 100 for values in theirs.values()]
    if not found or not zeros < min(found) <= max(found) < 2 * zeros:
        return ""
    return (
        f" The published {mean_percent(min(found))} to {mean_percent(max(found))} % are between these: their points or "
        "their definition are others."
    )
