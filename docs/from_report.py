"""Copy tables of the report and of the benchmarks into the pages that show them.

    python docs/from_report.py [--check]

A page has a table between two comments, `<!-- from FILE: CAPTION -->` and `<!-- end -->`: the rows in FILE below the
line that begins with CAPTION. `--check` writes nothing and names pages that are out of date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/measured.md", "docs/training.md", "docs/coupled.md")
_PLACE = re.compile(r"(<!-- from (\S+): (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(file: str, caption: str) -> str:
    """Return the first table below a line of a Markdown file."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith(caption)), None)
    if start is None:
        raise SystemExit(f"There is no line in {file} that begins with {caption!r}.")
    rows = []
    for line in lines[start + 1 :]:
        if line.startswith("|"):
            rows.append(line)
        elif rows:
            break
    return "\n".join(rows)


def renewed(text: str) -> str:
    """Return a page with its tables replaced by the current ones."""
    return _PLACE.sub(lambda found: f"{found[1]}\n{table(found[2], found[3])}\n\n{found[4]}", text)


def main() -> None:
    """Update the pages, or name those that are out of date."""
    behind = []
    for name in PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        if (new := renewed(text)) != text:
            behind.append(name)
            if "--check" not in sys.argv:
                (ROOT / name).write_text(new, encoding="utf-8")
    if behind and "--check" in sys.argv:
        raise SystemExit(f"Behind the data: {', '.join(behind)}; python docs/from_report.py renews them.")


if __name__ == "__main__":
    main()
