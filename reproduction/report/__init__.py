"""A report of reproductions: what held and what did not, every table and figure, and where the numbers come from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dudx.errors import InputError
from reproduction.experiments import experiments
from reproduction.experiments.claims import corrected
from reproduction.experiments.data import CONFIGS, ENVIRONMENT, write
from reproduction.experiments.statistics import LEVEL, SAME
from reproduction.experiments.tables import Table
from reproduction.report.document import Document, Judged, Part, Section
from reproduction.report.html import page
from reproduction.report.parts import PARTS, Source
from reproduction.report.summary import overview_of, summary_table
from reproduction.runner import from_data, present, with_data

PAPER = (
    "M. J. Mikulski and T. Uhl, “Derivative Computation in PINNs: Automatic Differentiation, Finite Differences and "
    "Beyond”"
)
METHOD = [
    "Every verdict is computed from the data. Runs of one seed start from the same network and see the same points "
    "whatever the engine, so engines are compared seed by seed, by a paired t-test of the logarithms of their errors "
    f"at the {100 * LEVEL:g} % level, corrected for the number of claims in a part by Holm's method.",
    f"“As accurate as” has held if the 95 % interval of the ratio excludes a factor of {SAME:g} and no difference is "
    "significant; in part, if there is a significant difference, but a smaller one.",
    "“More accurate” has held if the difference is significant and at least half the published one, in logarithms; in "
    "part, if it is smaller, or significant only by itself; it did not hold if the interval excludes the published "
    f"difference, or a factor of {SAME:g} where no number is published.",
    "“Undecided” means that the runs there are cannot tell: some are missing, which the tables name, or the seeds "
    "differ so much that the interval excludes nothing.",
    "A run whose error is above 50 % has collapsed: it counts, and what it takes part in holds in part at best. Where "
    "most runs of both engines collapsed, nothing is decided.",
    "Times and memory have no seeds; what they are compared by is said with them.",
]


def several(folder: Path) -> bool:
    """Whether a folder is not that of a reproduction, but holds such folders."""
    return not (folder / "data").exists() and any((folder / name / "data").exists() for name in ("protocol", "cpu"))


def redraw(folder: Path, out: Path) -> list[Path]:
    """Make all tables, figures and the report again of the data of the reproductions that a folder holds."""
    written = []
    for place in sorted(path.parent for path in folder.glob("*/data")):
        written += from_data(with_data(place), place, out / place.name)
    return written + write_report(folder, out)


def write_report(folder: Path, out: Path | None = None) -> list[Path]:
    """Write report.md and report.html; tables and figures that are missing are made first.

    Args:
        folder: of a reproduction, or one that holds those of the profiles `protocol` and `cpu`: then the report has
            three parts.
        out: where to write it, if not there. Its links are those of a page in the folder.
    """
    report = _of_several(folder) if several(folder) else _of_one(folder)
    texts = {"report.md": report.markdown(folder), "report.html": page(report)}
    for name, text in texts.items():
        write((out or folder) / name, text.encode())
    return [(out or folder) / name for name in texts]


def _of_one(folder: Path) -> Document:
    """The report of what a folder has data of."""
    there = with_data(folder)
    sources = [Source(folder, experiment) for experiment in there]
    missing = [name for name in experiments() if name not in {experiment.name for experiment in there}]
    told = [f"Missing, because there are no data of them: {', '.join(missing)}."] if missing else []
    return _document(folder, [_part(folder, "Claim by claim", told, sources)], sources, folder)


def _of_several(folder: Path) -> Document:
    parts, every = [], []
    for title, introduction, wanted in PARTS:
        sources = [Source(folder / place, experiments()[name]) for place, name in wanted]
        there = [source for source in sources if source.data.there]
        missing = [f"{source.experiment.name} ({source.folder.name})" for source in sources if source not in there]
        told = [f"No runs of these yet: {', '.join(missing)}."] if missing else []
        parts.append(_part(folder, title, [introduction, *told], there))
        every += there
    if not every:
        raise InputError(f"There are no data in {str(folder)!r}; make some with dudx reproduce.")
    return _document(folder, parts, every, folder / "cpu")


def _document(folder: Path, parts: Sequence[Part], sources: Sequence[Source], shown: Path) -> Document:
    claims = [judged for part in parts for judged in part.claims]
    introduction = [f"A reproduction of {PAPER}, with the published numbers beside ours."]
    closing = [
        Section("How the verdicts come about", METHOD),
        Section("Where the numbers come from", tables=[_environments(sources)]),
    ]
    title = "What of the paper holds here"
    return Document(title, introduction, parts, summary_table(claims), overview_of(shown), closing)


def _part(beside: Path, title: str, paragraphs: Sequence[str], sources: Sequence[Source]) -> Part:
    for source in sources:
        present(source.experiment, source.folder, source.folder)
    found = [(source, claim) for source in sources for claim in source.experiment.claims(source.data)]
    final = corrected([claim for _, claim in found])
    judged = [
        Judged(claim, source.experiment.name, _main(source, beside))
        for (source, _), claim in zip(found, final, strict=True)
    ]
    return Part(title, paragraphs, judged, [_section(beside, source) for source in sources])


def _files(source: Source, beside: Path) -> list[str]:
    """The data files, numbers first."""
    names = sorted(source.data.files, key=lambda path: (path.name in (CONFIGS, ENVIRONMENT), path.name))
    return [path.relative_to(beside).as_posix() for path in names if path.suffix in (".csv", ".npz", ".json")]


def _main(source: Source, beside: Path) -> str:
    """The file that claims are judged by."""
    files = _files(source, beside)
    tables = [path for path in files if path.endswith(".csv")]
    return next((path for path in tables if path.endswith("runs.csv")), (tables or files)[0])


def _section(beside: Path, source: Source) -> Section:
    experiment = source.experiment
    tables = experiment.tables(source.data) if experiment.tables else []
    picture = source.folder / "figures" / f"{experiment.name}.png" if experiment.figure else None
    notes = [experiment.note] if experiment.note else []
    title = f"{experiment.name}: {experiment.title}"
    return Section(title, notes, tables, picture, _files(source, beside))


def _environments(sources: Sequence[Source]) -> Table:
    lines = []
    for source in sources:
        for found in source.data.environments():
            commit = str(found.get("commit") or "-")[:10]
            words = [found.get(key) for key in ("dudx", "torch", "numpy", "python", "platform", "processor", "cuda")]
            known = [str(word or "-") for word in words]
            lines.append([source.experiment.name, source.folder.name, *known, commit, str(found.get("times", "-"))])
    columns = [
        "experiment",
        "in",
        "dudx",
        "torch",
        "numpy",
        "Python",
        "platform",
        "processor",
        "GPU",
        "commit",
        "pieces",
    ]
    note = "The settings and seeds of every run are in `configs.json` beside the data of each experiment."
    caption = "Versions and machines, and how many runs or measurements they made."
    return Table(caption, columns, lines, [note], words=2)
