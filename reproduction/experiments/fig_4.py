"""Figure 4: time and memory of a training step against the batch size, on three networks."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy import stats

from dudx.lab import plots
from reproduction.analysis import claims
from reproduction.analysis.claims import Claim, Ratio
from reproduction.analysis.figures import drawn, panels
from reproduction.analysis.published import published
from reproduction.analysis.tables import Table, times
from reproduction.experiment import Experiment, ExperimentResults
from reproduction.measurements import step_cost
from reproduction.measurements.step_cost import TITLES

_STYLES = {
    "batched AD": (plots.COLOURS[6], "o", "-"),
    "per-sample AD": ("0.55", "X", "--"),
    "FD": (plots.COLOURS[0], "s", "-"),
    "Taylor": (plots.COLOURS[3], "v", "-"),
    "AD in slices": (plots.COLOURS[6], "o", ":"),
    "FD in slices": (plots.COLOURS[0], "s", ":"),
    "Taylor in slices": (plots.COLOURS[3], "v", ":"),
    "Taylor compiled": (plots.COLOURS[1], "P", "-"),
    "Taylor compiled in slices": (plots.COLOURS[1], "P", ":"),
    "isolated AD": (plots.COLOURS[2], "o", ":"),
    "isolated FD": (plots.COLOURS[5], "s", ":"),
    "isolated Taylor": (plots.COLOURS[3], "v", ":"),
}
#: Batch size at which the paper compares with the per-sample loop.
_PAPERS_BATCH = 128
#: Results by batch size.
ByBatch = Mapping[int, Mapping[str, Any]]
#: Results of each network and variant of a step, from small batches to large.
Ladders = Mapping[tuple[str, str], list[dict[str, Any]]]


def _ladders(results: ExperimentResults) -> Ladders:
    """Results by network and variant, from small batches to large."""
    ladders: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for arguments, result in results.measured:
        row = {"megabytes": None, **result, "batch": arguments["batch"]}
        ladders.setdefault((arguments["network"], arguments["variant"]), []).append(row)
    return ladders


def _measured(ladder: Sequence[Mapping[str, Any]] | None) -> ByBatch:
    return {row["batch"]: row for row in ladder or () if row["status"] == "ok"}


# -- factors -------------------------------------------------------------------------------------------------------


def _common(*points: ByBatch) -> list[int]:
    return sorted(set.intersection(*(set(of_variant) for of_variant in points)))


def _factor(top: ByBatch, bottom: ByBatch, key: str, batch: int | None) -> float | None:
    if batch is None or top[batch][key] is None or not bottom[batch][key]:
        return None
    return top[batch][key] / bottom[batch][key]


def _factors(ladders: Ladders) -> list[tuple[str, str, str, float | None, str]]:
    """Published factors: key, network, description, measured value, and the batch it was measured at."""
    found = []
    for network, title in TITLES.items():
        fd, batched, single = (_measured(ladders.get((network, v))) for v in ("FD", "batched AD", "per-sample AD"))
        both, all_three = _common(fd, batched), _common(fd, single)
        speeds = [value for batch in both if (value := _factor(batched, fd, "seconds", batch)) is not None]
        found.append(
            (
                "batched_time",
                network,
                f"{title}: time of batched AD over FD",
                _median(speeds),
                f"median of {len(speeds)} batches",
            )
        )
        last = both[-1] if both else None
        memory = _factor(batched, fd, "megabytes", last)
        found.append(("batched_memory", network, f"{title}: memory of batched AD over FD", memory, f"B = {last}"))
        at = _PAPERS_BATCH if _PAPERS_BATCH in all_three else all_three[-1] if all_three else None
        for key, what, measure in (
            ("per_sample_time", "time", "seconds"),
            ("per_sample_memory", "memory", "megabytes"),
        ):
            value = _factor(single, fd, measure, at)
            found.append((key, network, f"{title}: {what} of per-sample AD over FD", value, f"B = {at}"))
        reach = max(fd) / max(single) if fd and single else None
        ends = f"B = {max(fd, default='-')} and {max(single, default='-')}"
        found.append(("largest_batch", network, f"{title}: largest batch of FD over per-sample AD", reach, ends))
    return found


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _factor_text(value: float | Sequence[float] | None) -> str:
    if isinstance(value, Sequence):
        return f"{value[0]:g} to {value[1]:g}×"
    return times(value)


def _plain(value: float | None) -> str:
    """Format a time or a memory in three digits, or to the unit."""
    return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


# -- tables and figure ----------------------------------------------------------------------------------------------


def _tables(results: ExperimentResults) -> list[Table]:
    ladders = _ladders(results)
    lines = []
    for (network, variant), ladder in ladders.items():
        points = _measured(ladder)
        at = _PAPERS_BATCH if _PAPERS_BATCH in points else max(points, default=None)
        first = next((row for row in ladder if row["status"] != "ok"), None)
        name = f"{variant} (wrong)" if variant == "batched AD" and network != "mlp" else variant
        largest = max(points, default=None)
        cells, last = (
            [_plain(1e3 * points[b]["seconds"]), _plain(points[b]["megabytes"])] if b else ["-"] * 2
            for b in (at, largest)
        )
        why = "the largest tried" if first is None else f"{first['status']}: {first['reason']}"
        lines.append([TITLES[network], name, str(at or "-"), *cells, str(largest or "-"), *last, why])
    theirs = published("fig-4")
    factors = [
        [text, _factor_text(theirs[key].get(network)), times(value), where]
        for key, network, text, value, where in _factors(ladders)
    ]
    columns = ["network", "derivatives", "B", "ms", "MiB", "largest B", "ms", "MiB", "why not larger"]
    caption = "Time (fastest of several) and peak memory of a training step, each point in a process of its own."
    return [
        Table(caption, columns, lines, words=2),
        Table("Factors, published and ours.", ["factor", "published", "ours", "at"], factors, name="factors"),
    ]


def _figure(results: ExperimentResults, path: Path) -> None:
    ladders = _ladders(results)
    with panels(path, 2, 3, (12, 7)) as (figure, axes):
        for column, (network, title) in enumerate(TITLES.items()):
            for row, (key, factor, label) in enumerate(
                (("seconds", 1e3, "time of a training step [ms]"), ("megabytes", 1.0, "peak memory [MiB]"))
            ):
                ax = axes[row][column]
                for variant, (colour, marker, line) in _STYLES.items():
                    points = {b: p for b, p in _measured(ladders.get((network, variant))).items() if p[key] is not None}
                    values = [max(factor * point[key], 1e-2) for point in points.values()]
                    style = {"color": colour, "marker": marker, "linestyle": line, "markersize": 4}
                    if points:
                        ax.plot(list(points), values, label=variant, **style)
                if drawn(ax):
                    ax.set_xscale("log", base=2)
                    ax.set_yscale("log")
                ax.set(xlabel="batch" if row else "", ylabel="" if column else label, title="" if row else title)
        entries = {label: line for ax in axes[0] for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=6, handlelength=3)


def _claims(results: ExperimentResults) -> list[Claim]:
    ladders, theirs = _ladders(results), published("fig-4")
    found = [_speed_claim(ladders, network) for network in TITLES]
    words = {
        "batched_memory": "a step with FD takes half the memory of one with batched AD",
        "per_sample_time": "per-sample AD is two to three orders of magnitude slower than FD",
        "per_sample_memory": "per-sample AD takes one to two orders of magnitude more memory than FD",
        "largest_batch": "FD takes batches that per-sample AD has no memory or time for",
    }
    for key, network, _, value, where in _factors(ladders):
        claimed = theirs[key].get(network)
        if key in words and claimed is not None:
            verdict = claims.at_least(value, claimed)
            evidence = f"{times(value)} at {where}; counted as held from {times(claims.SHARE * claimed)}"
            ratio = None if value is None else Ratio(words[key], value, value, value, claimed)
            text = f"{TITLES[network]}: {words[key]}"
            found.append(Claim(text, times(claimed), verdict, evidence, ratio=ratio))
    return found


def _speed_claim(ladders: Ladders, network: str) -> Claim:
    fd, batched = (_measured(ladders.get((network, variant))) for variant in ("FD", "batched AD"))
    low, high = published("fig-4")["batched_time"][network]
    text = f"{TITLES[network]}: FD is faster than batched AD at every batch"
    published_range = f"{low:g} to {high:g}× at every batch"
    ratios = [_factor(batched, fd, "seconds", batch) for batch in _common(fd, batched)]
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return Claim(text, published_range, "undecided", "there is no batch that both were measured at")
    faster = sum(ratio > 1 for ratio in known)
    p = stats.binomtest(faster, len(known)).pvalue
    verdict = claims.at_least(statistics.median(known), low)
    if verdict == "held" and faster < len(known):
        verdict = "held in part"
    evidence = (
        f"batched AD / FD: median {times(statistics.median(known))}, from {times(min(known))} to {times(max(known))}; "
        f"FD is faster at {faster} of {len(known)} batches (sign test over batches, p = {p:.2g}; a time has no seeds)"
    )
    ratio = Ratio("batched AD / FD", statistics.median(known), min(known), max(known), low)
    return Claim(text, published_range, verdict, evidence, ratio=ratio)


EXPERIMENT = Experiment(
    "fig-4",
    "Time and memory of a training step",
    measurements=step_cost.measurements,
    tables=_tables,
    figure=_figure,
    claims=_claims,
    position=9,
)
