"""Report as a Markdown page: a verdict on each claim, every table and figure, and where the numbers come from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dudx.errors import percent
from reproduction.analysis.claims import VERDICTS, Claim, corrected
from reproduction.analysis.statistics import LEVEL, SAME
from reproduction.analysis.tables import Cell, Table, escaped
from reproduction.experiment import Experiment, ExperimentResults
from reproduction.experiments import experiments
from reproduction.missing_runs import missing_table
from reproduction.open_choices import choices_table, outcomes_table

PAPER = (
    "M. J. Mikulski and T. Uhl, “Derivative Computation in PINNs: Automatic Differentiation, Finite Differences and "
    "Beyond”"
)
METHOD = [
    "Every verdict is computed from the results. Runs with the same seed start from the same network and use the same "
    "points with every engine. Engines are therefore compared seed by seed, by a paired t-test of the logarithms of "
    f"their errors at the {percent(LEVEL)} level, corrected for the number of claims in a part by Holm's method.",
    f"“As accurate as” held if the 95 % interval of the ratio excludes a factor of {SAME:g} and no difference is "
    "significant. It held in part if there is a significant difference, but a smaller one.",
    "“More accurate” held if the difference is significant and at least half the published one, in logarithms. It held "
    "in part if the difference is smaller, or significant only without correction. It did not hold if the interval "
    f"excludes the published difference, or a factor of {SAME:g} where no number is published.",
    "“Undecided” means that the existing runs cannot decide: some are missing, which the tables name, or the seeds "
    "differ so much that the interval excludes nothing.",
    "A run with an error above 50 % has collapsed. It counts, and its claim holds in part at best. If most runs of "
    "both engines collapsed, nothing is decided.",
    "Times and memory have no seeds; the evidence says how they are compared.",
]
#: Topics, each with a pattern that the text of its claims matches.
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
OPEN = "Part 4: choices that the paper leaves open"
_TABLES = ("table-poisson", "table-burgers", "table-heat", "table-summary", "fig-5")
#: Title, introduction, and the experiments with the profiles they are taken from.
PARTS: list[tuple[str, str, list[tuple[str, str]]]] = [
    (
        "Part 1: the paper's protocol, as far as a CPU goes",
        "The optimizer, learning rate, networks, weights, coordinates and 20 000 epochs of the paper; batches of 1024 "
        "in place of 8192, fewer seeds, and heat with a network of 4 × 128 (`--profile protocol`). Experiments without "
        "training are as published (`--profile cpu`).",
        [("cpu", name) for name in ("table-1", "fig-2", "fig-3")]
        + [("protocol", name) for name in ("fig-1", *_TABLES)]
        + [("cpu", "appendix-b")],
    ),
    (
        "Part 2: solved problems",
        "The same questions on networks that solve their problem: second order in double precision, a minute or two on "
        "one core, errors a hundred times smaller (`--profile cpu`).",
        [("cpu", name) for name in ("fig-1", *_TABLES, "coupled-training")],
    ),
    (
        "Part 3: cost",
        "Time and memory of a training step on a CPU, and the time until an error is reached (`--profile cpu`).",
        [("cpu", name) for name in ("fig-4", "time-to-error")],
    ),
    (
        OPEN,
        "The protocol with other choices of how boundary terms are averaged, of the initialisation, and of sizes "
        "(`--profile protocol-one-mean`, `protocol-slow`, `protocol-size`).",
        [(f"protocol-{name}", "table-poisson") for name in ("one-mean", "slow", "size")]
        + [("protocol-size", "table-heat")],
    ),
    (
        "Part 5: questions that the paper leaves open",
        "Short trainings of small networks, and the best step of fourth derivatives (`--profile cpu`).",
        [("cpu", name) for name in ("methods", "fourth-order", "double-precision", "entropy", "outcomes")],
    ),
]


@dataclass(frozen=True)
class ReportSource:
    """Experiment with its results for one profile."""

    profile: str
    experiment: Experiment
    results: ExperimentResults

    @property
    def title(self) -> str:
        """Heading, which names the profile, as some experiments are in several parts."""
        return f"{self.experiment.name} ({self.profile}): {self.experiment.title}"


@dataclass(frozen=True)
class Chapter:
    """Part of the report: sources whose claims are corrected together."""

    title: str
    paragraphs: Sequence[str]
    sources: Sequence[ReportSource]
    tables: Sequence[Table] = ()

    @cached_property
    def claims(self) -> list[tuple[ReportSource, Claim]]:
        """Corrected claims, each with the source it is judged by."""
        found = [(source, claim) for source in self.sources for claim in source.experiment.claims(source.results)]
        final = corrected([claim for _, claim in found])
        return [(source, claim) for (source, _), claim in zip(found, final, strict=True)]

    def verdicts(self) -> Table:
        """Return how many claims held, of the paper and of ours."""
        lines = []
        for whose, ours in (("of the paper", False), ("ours", True)):
            mine = [claim for _, claim in self.claims if (claim.published == "ours") == ours]
            lines.append([whose, *(str(sum(claim.verdict == verdict for claim in mine)) for verdict in VERDICTS)])
        return Table("Number of claims by verdict.", ["claims", *VERDICTS], lines)

    def every_claim(self) -> Table:
        """Return each claim with its verdict and the numbers behind it."""
        lines = [
            [
                claim.text + f" (runs still missing: {len(claim.missing)})" * bool(claim.missing),
                source.experiment.name,
                claim.published,
                Cell(claim.verdict, claim.verdict != "undecided"),
                claim.evidence,
            ]
            for source, claim in self.claims
        ]
        columns = ["claim", "from", "published", "verdict", "evidence"]
        return Table("Every claim.", columns, lines, words=len(columns))


def whole_report(found: Mapping[tuple[str, str], ExperimentResults]) -> list[Chapter]:
    """Arrange results, by profile and experiment, in the parts of the report."""
    chapters = []
    for title, introduction, wanted in PARTS:
        sources = [ReportSource(*key[:1], experiments()[key[1]], found[key]) for key in wanted if key in found]
        missing = [f"{name} ({profile})" for profile, name in wanted if (profile, name) not in found]
        note = [f"Not run yet: {', '.join(missing)}."] if missing else []
        tables = [choices_table(), outcomes_table(found)] if title == OPEN else []
        chapters.append(Chapter(title, [introduction, *note], sources, tables))
    wanted_runs = [(profile, name) for _, _, wanted in PARTS for profile, name in wanted]
    missing_runs = missing_table(wanted_runs, found)
    if missing_runs.rows:
        chapters.append(Chapter("Missing runs", [], [], [missing_runs]))
    return chapters


def report_of_profile(profile: str, found: Mapping[str, ExperimentResults]) -> list[Chapter]:
    """Arrange the results of one profile, by experiment, in one part."""
    sources = [ReportSource(profile, experiments()[name], results) for name, results in found.items()]
    missing = [name for name in experiments() if name not in found]
    note = [f"Missing, because there are no results: {', '.join(missing)}."] if missing else []
    return [Chapter("Claim by claim", note, sources)]


def markdown(chapters: Sequence[Chapter], picture: Callable[[ReportSource], str]) -> str:
    """Write the report in Markdown.

    Args:
        chapters: its parts.
        picture: returns the Markdown of the figure of a source.
    """
    parts = ["# Verdicts on the paper's claims", f"A reproduction of {PAPER}, with the published numbers beside ours."]
    parts.append(_written(summary(chapters)))
    for chapter in chapters:
        parts += [f"## {escaped(chapter.title)}", *map(escaped, chapter.paragraphs), *map(_written, chapter.tables)]
        if chapter.claims:
            parts += [_written(chapter.verdicts()), _written(chapter.every_claim())]
        for source in chapter.sources:
            parts += [f"### {escaped(source.title)}", *map(escaped, filter(None, [source.experiment.note]))]
            parts += [_written(table) for table in (source.experiment.tables or (lambda _: []))(source.results)]
            parts += [picture(source)] * (source.experiment.figure is not None)
    parts += ["## How verdicts are computed", *METHOD, "## Where the numbers come from"]
    parts.append(_written(machines([source for chapter in chapters for source in chapter.sources])))
    return "\n\n".join(parts) + "\n"


def _written(table: Table) -> str:
    return table.markdown().rstrip("\n")


def summary(chapters: Sequence[Chapter]) -> Table:
    """Return how many claims of each topic held, over all parts."""
    claims = [claim for chapter in chapters for _, claim in chapter.claims]
    lines = []
    for topic, pattern in TOPICS.items():
        found = [claim.verdict for claim in claims if re.search(pattern, claim.text)]
        lines.append([topic, *(str(found.count(verdict)) for verdict in VERDICTS)])
    return Table("Claims by topic, and how many of them held.", ["topic", *VERDICTS], lines)


def machines(sources: Sequence[ReportSource]) -> Table:
    """Return the versions and machines that the results of each experiment come from."""
    keys = ("dudx", "torch", "numpy", "python", "platform", "processor", "cuda")
    lines = []
    for source in sources:
        for found in source.results.machines:
            versions = [str(found.get(key) or "-") for key in keys]
            commit = str(found.get("commit") or "-")[:10]
            lines.append([source.experiment.name, source.profile, *versions, commit, str(found["count"])])
    columns = ["experiment", "profile", "dudx", "torch", "numpy", "Python", "platform", "processor", "GPU", "commit"]
    note = "Settings and seed of every run are in the result tables, `runs.csv`."
    return Table(
        "Versions and machines, and the number of runs or measurements on each.",
        [*columns, "count"],
        lines,
        [note],
        words=2,
    )
