"""A report of a reproduction: what held and what did not, every table and figure, and where the numbers come from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dudx.lab.paper.experiments import Experiment, experiments
from dudx.lab.paper.experiments.claims import VERDICTS, Claim
from dudx.lab.paper.experiments.data import Data, write
from dudx.lab.paper.experiments.statistics import LEVEL
from dudx.lab.paper.experiments.tables import Cell, Table
from dudx.lab.paper.report.document import Document, Section
from dudx.lab.paper.report.html import page
from dudx.lab.paper.reproduction import present, with_data

PAPER = (
    "M. J. Mikulski and T. Uhl, “Derivative Computation in PINNs: Automatic Differentiation, Finite Differences and "
    "Beyond”"
)
_METHOD = (
    "Every verdict is computed from the data. Runs of one seed start from the same network and see the same points "
    "whatever the engine, so engines are compared seed by seed, by a paired t-test of the logarithms of their errors "
    f"at the {100 * LEVEL:g} % level, not corrected for the number of claims. “As accurate as” has held if the means "
    "are closer than one standard deviation of the seeds, the interval of the ratio excludes a factor of 2, and no "
    "difference is significant (in part if one is); "
    "“undecided” means that our seeds are too few or too different to tell. Times and memory have no seeds; what "
    "they are compared by is said with them."
)


def write_report(folder: Path) -> list[Path]:
    """Write report.md and report.html beside the data; tables and figures that are missing are made first."""
    there = with_data(folder)
    for experiment in there:
        present(experiment, folder, folder)
    report = make_report(folder, there)
    texts = {"report.md": report.markdown(folder), "report.html": page(report)}
    for name, text in texts.items():
        write(folder / name, text.encode())
    return [folder / name for name in texts]


def make_report(folder: Path, there: Sequence[Experiment]) -> Document:
    """The report of what a folder has data of."""
    missing = [name for name in experiments() if name not in {experiment.name for experiment in there}]
    told = [f"Missing, because there are no data of them: {', '.join(missing)}."] if missing else []
    found = {experiment: experiment.claims(_data(folder, experiment)) for experiment in there}
    return Document(
        "What of the paper holds here",
        [f"A reproduction of {PAPER}, with the published numbers beside ours.", *told],
        [
            Section("Claim by claim", [_METHOD], [_verdicts(found), _claims(found)]),
            *(_section(folder, experiment) for experiment in there),
            Section("Where the numbers come from", tables=[_environments(folder, there)]),
        ],
    )


def _data(folder: Path, experiment: Experiment) -> Data:
    return Data(folder / "data" / experiment.name)


def _claims(found: dict[Experiment, list[Claim]]) -> Table:
    lines = [
        [
            claim.text,
            experiment.name,
            claim.published,
            Cell(claim.verdict, claim.verdict != "undecided"),
            claim.evidence,
        ]
        for experiment, claims in found.items()
        for claim in claims
    ]
    columns = ["claim", "from", "published", "on our scale", "evidence"]
    return Table("Every claim.", columns, lines, words=len(columns))


def _verdicts(found: dict[Experiment, list[Claim]]) -> Table:
    claims = [claim for of_experiment in found.values() for claim in of_experiment]
    lines = []
    for whose, chosen in (
        ("of the paper", [claim for claim in claims if claim.published != "ours"]),
        ("ours, beyond the paper", [claim for claim in claims if claim.published == "ours"]),
    ):
        counts = [sum(claim.verdict == verdict for claim in chosen) for verdict in VERDICTS]
        lines.append([whose, *map(str, counts)])
    return Table("How many claims held.", ["claims", *VERDICTS], lines)


def _section(folder: Path, experiment: Experiment) -> Section:
    data = _data(folder, experiment)
    tables = experiment.tables(data) if experiment.tables else []
    picture = folder / "figures" / f"{experiment.name}.png" if experiment.figure else None
    notes = [experiment.note] if experiment.note else []
    return Section(f"{experiment.name}: {experiment.title}", notes, tables, picture)


def _environments(folder: Path, there: Sequence[Experiment]) -> Table:
    lines = []
    for experiment in there:
        for found in _data(folder, experiment).environments():
            commit = str(found.get("commit") or "-")[:10]
            words = [found.get(key) for key in ("dudx", "torch", "numpy", "python", "platform", "processor", "cuda")]
            lines.append([experiment.name, *(str(word or "-") for word in words), commit, str(found.get("times", "-"))])
    columns = ["experiment", "dudx", "torch", "numpy", "Python", "platform", "processor", "GPU", "commit", "pieces"]
    note = "The settings and seeds of every run are in `configs.json` beside the data of each experiment."
    return Table("Versions and machines, and how many runs or measurements they made.", columns, lines, [note])
