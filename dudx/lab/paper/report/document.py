"""A document of sections, tables and pictures, and how it reads in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dudx.lab.paper.experiments.tables import Table, escaped


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    title: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    picture: Path | None = None


@dataclass(frozen=True)
class Document:
    """A document, to be written as Markdown or HTML."""

    title: str
    introduction: Sequence[str]
    sections: Sequence[Section] = ()

    def markdown(self, beside: Path) -> str:
        """The report as Markdown, pictures linked relative to the folder `beside`."""
        parts = [f"# {escaped(self.title)}", *map(escaped, self.introduction)]
        for section in self.sections:
            parts += [f"## {escaped(section.title)}", *map(escaped, section.paragraphs)]
            parts += [table.markdown().rstrip("\n") for table in section.tables]
            if section.picture is not None:
                parts.append(f"![{escaped(section.title)}]({section.picture.relative_to(beside).as_posix()})")
        return "\n\n".join(parts) + "\n"
