"""The report in ten lines and one picture: what is claimed, how much of it held, and the error of every run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from dudx.lab.run.engine_table import engine_label, in_table_order
from reproduction.experiments import trained
from reproduction.experiments.accuracy import title
from reproduction.experiments.claims import VERDICTS
from reproduction.experiments.data import Data
from reproduction.experiments.published import published
from reproduction.experiments.tables import Table
from reproduction.report.document import Judged
from reproduction.report.drawing import overview

#: A topic, and what the claims that belong to it say.
TOPICS = {
    "The best step of first derivatives is C₁ ε_m^⅓, with C₁ of a few.": r"best step",
    "FD and eFD are as accurate as AD.": r"as accurate as AD",
    "sFD is more accurate than AD on Poisson, and less elsewhere.": r"sFD is (more|less) accurate",
    "How often steps are calibrated hardly matters.": r"flat in the recalibration interval",
    "sFD fails when steps are calibrated twice in a training.": r"sFD fails",
    "FD is faster than AD: than the usual idiom, and than one sample at a time.": r"faster than|slower than",
    "FD takes less memory than AD, and larger batches.": r"memory",
    "Where samples influence each other, the usual idiom is wrong, and FD less so.": r"over samples is|batch come",
    "Isolation gives each sample its own derivative, with every engine (ours).": r"isolation comes|trains as well",
    "Trained by the wrong derivatives, such networks solve the problem worse (ours).": r"trained by the derivative of",
}
_PROBLEMS = ("poisson", "burgers", "heat")


def summary_table(claims: Sequence[Judged]) -> Table:
    """How many claims of each topic held, over all parts."""
    lines = []
    for topic, pattern in TOPICS.items():
        found = [judged.claim.verdict for judged in claims if re.search(pattern, judged.claim.text)]
        lines.append([topic, *(str(found.count(verdict)) for verdict in VERDICTS)])
    return Table("What is claimed, and how many times it held.", ["topic", *VERDICTS], lines)


def overview_of(folder: Path) -> str:
    """The picture of the errors in a folder, in per cent; nothing where it has no accuracy tables."""
    found = {}
    for problem in _PROBLEMS:
        data = Data(folder / "data" / f"table-{problem}")
        if not data.there:
            continue
        rows, theirs = trained.read(data), published(f"table-{problem}")
        found[title(problem)] = {
            engine_label(engine).removesuffix(" (ours)"): (
                [100 * error for error in trained.by_seed(trained.where(rows, engine=engine)).values()],
                theirs.get(engine, {}).get("l2_relative", [None])[0],
            )
            for engine in in_table_order(row["engine"] for row in rows)
        }
    return overview(found)
