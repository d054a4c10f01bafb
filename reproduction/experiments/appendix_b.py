"""Networks whose samples influence each other: how wrong the Laplacian of each method is."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dudx.errors import percent
from dudx.lab import plots
from reproduction.analysis import claims
from reproduction.analysis.claims import Claim
from reproduction.analysis.figures import panels
from reproduction.analysis.published import published
from reproduction.analysis.statistics import Seeds, compare, over_seeds
from reproduction.analysis.table_figures import TableRow, draw_rows
from reproduction.analysis.tables import Table, scientific, times
from reproduction.experiment import Experiment, ExperimentResults
from reproduction.measurements import laplacian_error
from reproduction.measurements.step_cost import TITLES

_LABELS = {
    "batched_ad": "batched AD",
    "batched_fd": "FD on the batch",
    "isolated_ad": "isolated AD (ours)",
    "isolated_fd": "isolated FD (ours)",
    "isolated_taylor": "isolated Taylor (ours)",
}
#: Share of the largest Laplacian from which a difference counts as wrong.
WRONG = 0.01


def _read(results: ExperimentResults) -> Callable[[str, str, str], Seeds]:
    """Return a function from network, number format and quantity to values by initialisation."""
    ok = [(arguments, result) for arguments, result in results.measured if result["status"] == "ok"]

    def values(network: str, dtype: str, key: str) -> Seeds:
        return {a["seed"]: result[dtype][key] for a, result in ok if a["network"] == network}

    return values


def _tables(results: ExperimentResults) -> list[Table]:
    values, theirs = _read(results), published("appendix-b")
    lines = []
    for network in laplacian_error.NETWORK_NAMES:
        for method, label in _LABELS.items():
            single, double = (values(network, dtype, method) for dtype in laplacian_error.DTYPES)
            shares = [single[seed] / scale for seed, scale in values(network, "float32", "scale").items() if scale]
            line = [TITLES[network], label, scientific(theirs[network].get(method)), scientific(_median(single))]
            share = percent(statistics.median(shares)) if shares else "-"
            lines.append([*line, share, scientific(_median(double)), str(len(single))])
    return [
        Table(
            "Largest difference of the Laplacian from that of PerSampleAD, median over initialisations.",
            [
                "network",
                "derivatives",
                "published",
                "ours, FP32",
                "of the largest Laplacian",
                "ours, FP64",
                "initialisations",
            ],
            lines,
            [
                "On the plain network there is nothing to isolate, so its isolated rows are the engine itself. The "
                "published domain is not known; ours is [-1, 1]². The step of FD is the one closest to PerSampleAD."
            ],
            words=2,
        )
    ]


def _median(by_seed: Seeds) -> float | None:
    return statistics.median(by_seed.values()) if by_seed else None


def _figure(results: ExperimentResults, path: Path) -> None:
    """A dot per initialisation, and the published median; exact zeros have no place on a logarithmic axis."""
    values = _read(results)
    with panels(path, 1, len(laplacian_error.NETWORK_NAMES), (14, 3.2)) as (figure, (axes,)):
        for ax, network in zip(axes, laplacian_error.NETWORK_NAMES, strict=True):
            theirs = published("appendix-b")[network]
            lines = [
                TableRow(
                    label.removesuffix(" (ours)"),
                    plots.COLOURS[number],
                    "o",
                    [value for value in values(network, "float32", method).values() if value > 0],
                    [theirs[method]] if theirs.get(method) else None,
                )
                for number, (method, label) in enumerate(_LABELS.items())
            ]
            draw_rows(ax, lines, "largest difference of the Laplacian, FP32")
            ax.set_title(TITLES[network])
        words = "filled: ours, mean ± standard deviation and a dot per initialisation; ◇: published median"
        figure.supxlabel(words, fontsize="small")


def _claims(results: ExperimentResults) -> list[Claim]:
    values, found = _read(results), []
    for network in ("batchnorm", "attention"):
        title, theirs = TITLES[network], published("appendix-b")[network]
        of: dict[str, Any] = {key: values(network, "float32", key) for key in (*laplacian_error.LAPLACIANS, "scale")}
        shares = np.array([of["batched_ad"][seed] / scale for seed, scale in of["scale"].items()])
        known = len(shares) > 1 and bool((shares > 0).all())
        wrong = over_seeds(np.log(shares / WRONG)) if known else None
        off = f"off by {percent(float(np.median(shares)))} of the largest Laplacian; " if len(shares) else ""
        words = f"{off}against {percent(WRONG)}, where wrong begins"
        text = f"{title}: the derivative of the sum over samples is wrong"
        finding = claims.larger(wrong, "t-test of the logarithms")
        found.append(finding.claim(text, f"off by {theirs['batched_ad']:g}", words, wrong))

        claimed = theirs["batched_ad"] / theirs["batched_fd"]
        closer = compare(of["batched_ad"], of["batched_fd"])
        finding = claims.larger(closer, claimed=claimed)
        text = f"{title}: differences on the whole batch come closer"
        found.append(finding.claim(text, times(claimed), "batched AD / FD on the batch", closer, claimed))

        isolated = compare(of["isolated_taylor"], of["batched_fd"])
        text = f"{title}: isolation comes closer still"
        words = "isolated Taylor / FD on the batch"
        found.append(claims.smaller(isolated).claim(text, "ours", words, isolated))
    return found


EXPERIMENT = Experiment(
    "appendix-b",
    "Whose derivative is it? Networks whose samples influence each other",
    measurements=laplacian_error.measurements,
    tables=_tables,
    figure=_figure,
    claims=_claims,
    position=11,
)
