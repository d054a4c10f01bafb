"""The table of results, beside the best published figures."""

from __future__ import annotations

import re
import statistics
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

from dudx.errors import InputError, percent
from dudx.lab import file_formats

PUBLISHED = Path(__file__).parent / "published.toml"
#: The order of the suite.
ORDER = (
    *("burgers1d_c", "burgers2d_c", "poisson2d_c", "poisson2d_cg", "poisson3d_cg", "poisson2d_ms", "heat2d_vc"),
    *("heat2d_ms", "heat2d_cg", "heat2d_lt", "ns2d_c", "ns2d_cg", "ns2d_lt", "wave1d_c", "wave2d_cg", "wave2d_ms"),
    *("gs", "ks", "pnd", "hnd", "pinv", "hinv"),
)
_PLACE = re.compile(r"(<!-- table -->\n).*?(<!-- end -->)", re.DOTALL)


def published() -> dict[str, Any]:
    """Return the published figures by problem, and their sources."""
    return tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))


def rows_in(out: Path) -> list[dict[str, Any]]:
    """Return all existing results, in the order of the suite."""
    found = [file_formats.read_json(path, dict) for path in sorted(out.glob("*_*.json"))]
    return sorted(found, key=lambda row: (ORDER.index(row["name"]), row["seed"]))


def write_table(out: Path) -> list[dict[str, Any]]:
    """Write the table of all existing results and return them."""
    rows = rows_in(out)
    file_formats.write_text(out / "README.md", f"# PINNacle\n\n{text_of(rows)}")
    return rows


def write_page(out: Path, page: Path) -> None:
    """Write the table between the marks of a page."""
    text = file_formats.read_text(page, f"There is no page {str(page)!r}.")
    if not _PLACE.search(text):
        raise InputError(f"The page {str(page)!r} has no marks <!-- table --> and <!-- end -->.")
    file_formats.write_text(page, _PLACE.sub(lambda found: found[1] + text_of(rows_in(out)) + found[2], text))


def text_of(rows: list[dict[str, Any]]) -> str:
    """Return the summary, the table and the sources."""
    figures = published()
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["name"]].append(row)
    lines = [_cells(runs, figures["problems"][name]) for name, runs in groups.items()]
    medians = {name: median(runs) for name, runs in groups.items()}
    better = sum(m is not None and m < best_of(figures["problems"][n])[0] for n, m in medians.items())
    failed = sum("failed" in row for row in rows)
    summary = (
        f"{len(rows)} runs of {len(groups)} problems, {failed} of them failed. The median is better than the best "
        f"published figure in {better} problems, below 10 % in {_below(medians, 0.1)}, below 1 % in "
        f"{_below(medians, 0.01)} and below 0.1 % in {_below(medians, 0.001)}."
    )
    head = [
        "| problem | relative L2 error | estimate | CPU s | best published | ours better | reference, agreement | |",
        "|---|---:|---:|---:|---:|---|---|---|",
    ]
    used = sorted({best_of(figures["problems"][name])[1] for name in groups})
    sources = [f"- {name}: {figures['sources'][name]}" for name in used]
    return "\n".join([summary, "", *head, *lines, "", "Sources of the published figures:", "", *sources, ""])


def best_of(figure: dict[str, Any]) -> tuple[float, str]:
    """Return the best published figure and the name of its source."""
    if "later" in figure and figure["later"] < figure["suite"]:
        return figure["later"], figure["source"]
    return figure["suite"], "suite"


def median(runs: list[dict[str, Any]]) -> float | None:
    """Return the median error of runs, of which a failed one is infinitely wrong; None where all failed."""
    errors = [row.get("error") for row in runs]
    found = statistics.median_high([float("inf") if error is None else error for error in errors])
    return None if found == float("inf") else found


def _below(medians: dict[str, float | None], limit: float) -> int:
    return sum(m is not None and m < limit for m in medians.values())


def _cells(runs: list[dict[str, Any]], figure: dict[str, Any]) -> str:
    best, source = best_of(figure)
    good = [row for row in runs if "failed" not in row]
    theirs = f"{percent(best)} ({source})"
    if not good:
        return f"| {runs[0]['title']} | - | - | - | {theirs} | no | - | failed: {runs[0]['failed']} |"
    middle = median(runs)
    shown = min(good, key=lambda row: abs(row["error"] - (middle or 0)))
    error, spread = percent(middle), [row["error"] for row in good]
    if len(good) > 1:
        error += f" ({percent(min(spread))} to {percent(max(spread))})"
    seconds = statistics.median(row["cpu_seconds"] for row in good)
    agreement = "" if shown["agreement"] is None else f", {percent(shown['agreement'])}"
    name = f"[{shown['title']}]({shown['name']}_{shown['seed']}.png)"
    better = "yes" if middle is not None and middle < best else "no"
    return (
        f"| {name} | {error} | {percent(shown['estimate'])} | {seconds:.0f} | {theirs} | {better} | "
        f"{shown['reference']}{agreement} | {'; '.join(_notes(shown, runs, figure))} |"
    )


def _notes(shown: dict[str, Any], runs: list[dict[str, Any]], figure: dict[str, Any]) -> list[str]:
    notes = []
    if len(shown["errors"]) > 1:
        notes.append(", ".join(f"{name} {percent(error)}" for name, error in shown["errors"].items()))
    if shown["windows"] > 1:
        notes.append(f"{shown['windows']} windows of time")
    if "suite_error" in shown:
        notes.append(f"{percent(shown['suite_error'])} against the suite's data")
    if shown.get("data"):
        notes.append("stated with the suite's data")
    if failed := [row for row in runs if "failed" in row]:
        notes.append(f"{len(failed)} of {len(runs)} runs failed: {failed[0]['failed']}")
    return notes + ([figure["note"]] if "note" in figure else [])
