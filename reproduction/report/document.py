"""A document of parts, sections, tables and pictures, and how it reads in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reproduction.experiments.claims import VERDICTS, Claim
from reproduction.experiments.tables import Cell, Table, escaped


@dataclass(frozen=True)
class Judged:
    """A claim with the experiment that it is judged by, and the file of the numbers."""

    claim: Claim
    experiment: str
    source: str


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it; the sources are the data files it is made of, seen from the document."""

    title: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    picture: Path | None = None
    sources: Sequence[str] = ()


@dataclass(frozen=True)
class Part:
    """A heading, the claims that are judged in it, and its sections."""

    title: str
    paragraphs: Sequence[str] = ()
    claims: Sequence[Judged] = ()
    sections: Sequence[Section] = ()

    def verdicts(self) -> Table:
        """How many claims held, of the paper and of ours."""
        lines = []
        for whose, ours in (("of the paper", False), ("ours", True)):
            chosen = [judged.claim for judged in self.claims if (judged.claim.published == "ours") == ours]
            lines.append([whose, *(str(sum(claim.verdict == verdict for claim in chosen)) for verdict in VERDICTS)])
        return Table("How many claims held.", ["claims", *VERDICTS], lines)

    def every_claim(self) -> Table:
        """Each claim with its verdict and the numbers behind it."""
        lines = [
            [
                judged.claim.text,
                judged.experiment,
                judged.claim.published,
                Cell(judged.claim.verdict, judged.claim.verdict != "undecided"),
                judged.claim.evidence,
            ]
            for judged in self.claims
        ]
        columns = ["claim", "from", "published", "on our scale", "evidence"]
        return Table("Every claim.", columns, lines, words=len(columns))


@dataclass(frozen=True)
class Document:
    """A document, to be written as Markdown or HTML; the summary is a line for each topic, with its verdicts."""

    title: str
    introduction: Sequence[str]
    parts: Sequence[Part] = ()
    summary: Table | None = None
    #: A picture before everything else, as SVG.
    picture: str = ""
    closing: Sequence[Section] = ()

    def markdown(self, beside: Path) -> str:
        """The report as Markdown, pictures linked relative to the folder `beside`."""
        parts = [f"# {escaped(self.title)}", *map(escaped, self.introduction)]
        if self.summary is not None:
            parts.append(self.summary.markdown().rstrip("\n"))
        for part in self.parts:
            parts += [f"## {escaped(part.title)}", *map(escaped, part.paragraphs)]
            if part.claims:
                parts += [table.markdown().rstrip("\n") for table in (part.verdicts(), part.every_claim())]
            for section in part.sections:
                parts += _markdown(section, beside)
        for section in self.closing:
            parts += _markdown(section, beside, level="##")
        return "\n\n".join(parts) + "\n"


def _markdown(section: Section, beside: Path, level: str = "###") -> list[str]:
    parts = [f"{level} {escaped(section.title)}", *map(escaped, section.paragraphs)]
    parts += [table.markdown().rstrip("\n") for table in section.tables]
    if section.picture is not None:
        parts.append(f"![{escaped(section.title)}]({section.picture.relative_to(beside).as_posix()})")
    if section.sources:
        parts.append("Data: " + ", ".join(f"[{path.rpartition('/')[2]}]({path})" for path in section.sources))
    return parts
