"""A report as one HTML page that needs nothing else: pictures are inside, and it follows the reader's light or dark."""

from __future__ import annotations

import base64
import html
import re

from dudx.lab.paper.experiments.tables import Cell, Table
from dudx.lab.paper.report.document import Document, Section

_STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --page: #fff; --line: #ccc; --soft: #f4f4f4; --good: #00694e;
  --bad: #a33a00; --open: #5f5f5f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --page: #16181a; --line: #444; --soft: #22262a;
  --good: #5fd3ae; --bad: #ff9a66; --open: #a8a8a8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 75rem; font: 1rem/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--page); }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
p, figcaption, caption { max-width: 48rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .3rem 0; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top;
  white-space: nowrap; }
th, .words { white-space: normal; } .words { text-align: left; }
th { background: var(--soft); } .long { min-width: 14rem; }
.held { color: var(--good); } .did-not-hold { color: var(--bad); } .undecided { color: var(--open); }
figure { margin: 1rem 0; }
img { max-width: 100%; height: auto; background: #fff; padding: .5rem; border-radius: .3rem; }
nav ul { columns: 18rem; column-gap: 2.5rem; padding-left: 1.2rem; } nav li { break-inside: avoid; }
"""
_LONG = 30  # characters from which a column is kept from getting narrow
_VERDICTS = {"held": "held", "held in part": "held", "did not hold": "did-not-hold", "undecided": "undecided"}


def page(report: Document) -> str:
    """The whole page."""
    contents = "".join(f'<li><a href="#{_anchor(s.title)}">{html.escape(s.title)}</a></li>' for s in report.sections)
    body = [
        f"<h1>{html.escape(report.title)}</h1>",
        *(_paragraph(text) for text in report.introduction),
        f'<nav aria-label="Contents"><ul>{contents}</ul></nav>',
        *(_section(section) for section in report.sections),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(report.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _paragraph(text: str) -> str:
    code = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))
    return f"<p>{code}</p>"


def _section(section: Section) -> str:
    parts = [f'<h2 id="{_anchor(section.title)}">{html.escape(section.title)}</h2>']
    parts += [_paragraph(text) for text in section.paragraphs]
    parts += [_table(table) for table in section.tables]
    if section.picture is not None:
        source = base64.b64encode(section.picture.read_bytes()).decode()
        name = html.escape(section.title)
        parts.append(f'<figure><img src="data:image/png;base64,{source}" alt="{name}"></figure>')
    return f"<section>\n{chr(10).join(parts)}\n</section>"


def _table(table: Table) -> str:
    marks = [' class="words"' if number < table.words else "" for number in range(len(table.columns))]
    heading = "".join(f'<th scope="col"{m}>{html.escape(c)}</th>' for m, c in zip(marks, table.columns, strict=True))
    rows = "\n".join(
        f"<tr>{''.join(_cell(cell, number < table.words) for number, cell in enumerate(row))}</tr>"
        for row in table.cells
    )
    notes = "".join(_paragraph(note) for note in table.notes)
    return (
        f'<div class="wide"><table>\n<caption>{html.escape(table.caption)}</caption>\n'
        f"<thead><tr>{heading}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>{notes}"
    )


def _cell(cell: Cell, words: bool) -> str:
    classes = [_VERDICTS[cell.text]] if cell.text in _VERDICTS else []
    classes += ["words"] * words + ["long"] * (len(cell.text) > _LONG)
    text = html.escape(cell.text)
    mark = f' class="{" ".join(classes)}"' if classes else ""
    return f"<td{mark}>{f'<strong>{text}</strong>' if cell.bold else text}</td>"
