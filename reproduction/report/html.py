"""A report as one HTML page that needs nothing else: pictures are inside, and it follows the reader's light or dark."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence

from reproduction.experiments.tables import Cell, Table
from reproduction.report.document import Document, Judged, Part, Section
from reproduction.report.drawing import ratio_picture
from reproduction.report.style import SCRIPT, STYLE

_LONG = 24  # characters from which a cell has several lines if need be
_WIDTH = slice(16, 20)  # where a PNG file has its width
_SHOWN = 0.7  # of a picture's width, so that letters are as large in all of them
_VERDICTS = {"held": "held", "held in part": "in-part", "did not hold": "did-not-hold", "undecided": "undecided"}


def page(report: Document) -> str:
    """The whole page."""
    body = [
        f"<h1>{html.escape(report.title)}</h1>",
        *(_paragraph(text) for text in report.introduction),
        _summary(report.summary),
        _overview(report.picture),
        _contents(report),
        *(_part(part) for part in report.parts),
        *(_section(section, "h2") for section in report.closing),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(report.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(filter(None, body))
        + f"\n</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _summary(table: Table | None) -> str:
    """A line for each topic: what is claimed, and how many verdicts of each kind there are."""
    if table is None:
        return ""
    lines = []
    for topic, *counts in table.cells:
        chips = [
            f'<span class="chip {_VERDICTS[verdict]}">{count.text} {verdict}</span>'
            for verdict, count in zip(table.columns[1:], counts, strict=True)
            if count.text != "0"
        ]
        told = "".join(chips) or '<span class="chip undecided">no runs yet</span>'
        lines.append(f"<li>{html.escape(topic.text)}{told}</li>")
    return f'<ul class="summary">{"".join(lines)}</ul>'


def _overview(picture: str) -> str:
    if not picture:
        return ""
    told = (
        "Relative L2 error of every network, a dot a run, a bar the median of its engine; diamonds are the published "
        "means. Networks trained by second order, on one core, in a minute or two."
    )
    return f"<figure>{picture}<figcaption>{told}</figcaption></figure>"


def _contents(report: Document) -> str:
    groups = []
    for part in report.parts:
        links = "".join(_link(section, part.title) for section in part.sections)
        title = f'<a href="#{_anchor(part.title)}">{html.escape(part.title)}</a>'
        groups.append(f"<li>{title}" + f"<ul>{links}</ul>" * bool(links) + "</li>")
    groups += [_link(section) for section in report.closing]
    return f'<nav aria-label="Contents"><ul>{"".join(groups)}</ul></nav>'


def _link(section: Section, part: str = "") -> str:
    return f'<li><a href="#{_anchor(part + section.title)}">{html.escape(section.title)}</a></li>'


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _paragraph(text: str) -> str:
    return f"<p>{re.sub(r'`([^`]+)`', _code, html.escape(text))}</p>"


def _code(found: re.Match[str]) -> str:
    """A command, which breaks between its words and not at the hyphens of an option."""
    return f"<code>{found[1].replace(' ', ' <wbr>')}</code>"


def _part(part: Part) -> str:
    pieces = [f'<h2 id="{_anchor(part.title)}">{html.escape(part.title)}</h2>', *map(_paragraph, part.paragraphs)]
    if part.claims:
        pieces += [_table(part.verdicts()), _cards(part.claims)]
    pieces += [_section(section, "h3", part.title) for section in part.sections]
    return f"<section>\n{chr(10).join(pieces)}\n</section>"


def _cards(claims: Sequence[Judged]) -> str:
    """Each claim with its verdict, a small picture, and the numbers for who wants them."""
    cards = []
    for judged in claims:
        claim = judged.claim
        picture = "" if claim.ratio is None else ratio_picture(claim.ratio)
        missing = f'<p class="small">Runs still missing: {len(claim.missing)}.</p>' if claim.missing else ""
        cards.append(
            f'<li><p class="verdict {_VERDICTS[claim.verdict]}">{claim.verdict}</p><p>{html.escape(claim.text)}</p>'
            f'<p class="small">Published: {html.escape(claim.published)}</p>{picture}{missing}'
            f"<details><summary>Numbers</summary>{_paragraph(claim.evidence)}</details>"
            f'<p class="small">{_files([judged.source], f"{judged.experiment}: ")}</p></li>'
        )
    return f'<ul class="cards">{"".join(cards)}</ul>'


def _section(section: Section, level: str, part: str = "") -> str:
    parts = [f'<{level} id="{_anchor(part + section.title)}">{html.escape(section.title)}</{level}>']
    parts += [_paragraph(text) for text in section.paragraphs]
    if section.picture is not None:
        content = section.picture.read_bytes()
        source, name = base64.b64encode(content).decode(), html.escape(section.title)
        width = round(_SHOWN * int.from_bytes(content[_WIDTH], "big"))
        image = f'<img src="data:image/png;base64,{source}" alt="{name}" style="--width: {width}px">'
        parts.append(f"<figure>{image}</figure>")
    parts += [_table(table, section.sources) for table in section.tables]
    if not section.tables and section.sources:
        parts.append(f'<p class="small">Data: {_files(section.sources)}</p>')
    return f"<section>\n{chr(10).join(parts)}\n</section>"


def _files(sources: Sequence[str], before: str = "") -> str:
    """Links to data files by their names."""
    named = [(html.escape(path), html.escape(before + path.rpartition("/")[2])) for path in sources]
    return ", ".join(f'<a href="{path}">{name}</a>' for path, name in named)


def _table(table: Table, sources: Sequence[str] = ()) -> str:
    marks = [' class="words"' if number < table.words else "" for number in range(len(table.columns))]
    heading = "".join(
        f'<th scope="col"{mark}><button type="button">{html.escape(column)}</button></th>'
        for mark, column in zip(marks, table.columns, strict=True)
    )
    rows = "\n".join(
        f"<tr>{''.join(_cell(cell, number < table.words) for number, cell in enumerate(row))}</tr>"
        for row in table.cells
    )
    notes = "".join(_paragraph(note) for note in table.notes)
    data = f' <span class="small">Data: {_files(sources)}</span>' if sources else ""
    return (
        f'<div class="wide"><table>\n<caption><span>{html.escape(table.caption)}{data}</span></caption>\n'
        f"<thead><tr>{heading}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>{notes}"
    )


def _cell(cell: Cell, words: bool) -> str:
    classes = [_VERDICTS[cell.text]] if cell.text in _VERDICTS else []
    classes += ["words"] * words + ["long"] * (len(cell.text) > _LONG)
    text = html.escape(cell.text)
    mark = f' class="{" ".join(classes)}"' if classes else ""
    return f"<td{mark}>{f'<strong>{text}</strong>' if cell.bold else text}</td>"
