"""Networks whose samples influence each other: which Laplacian is each sample's own."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from reproduction.experiments import claims, discrepancy
from reproduction.experiments.base import CsvRows, Experiment, Found
from reproduction.experiments.claims import Claim
from reproduction.experiments.data import Data
from reproduction.experiments.fig_4 import TITLES
from reproduction.experiments.published import published
from reproduction.experiments.statistics import Seeds, compare, over_seeds
from reproduction.experiments.tables import Table, percent, scientific, times

_FILE = "discrepancy.csv"
_LABELS = {
    "batched_ad": "batched AD",
    "batched_fd": "FD on the batch",
    "isolated_ad": "isolated AD (ours)",
    "isolated_fd": "isolated FD (ours)",
    "isolated_taylor": "isolated Taylor (ours)",
}
#: The share of the largest Laplacian from which a difference counts as wrong.
WRONG = 0.01


def _collect(found: Found) -> dict[str, CsvRows]:
    keys = (*discrepancy.LAPLACIANS, "scale")
    return {
        _FILE: [
            {
                "network": measurement.arguments["network"],
                "seed": measurement.arguments["seed"],
                "dtype": dtype,
                "status": result["status"],
                "loss": result.get("loss"),
                **{key: result.get(dtype, {}).get(key) for key in keys},
                "reason": result.get("reason"),
            }
            for measurement, result in found.measured
            for dtype in discrepancy.DTYPES
        ]
    }


def _read(data: Data) -> Callable[[str, str, str], Seeds]:
    """From network, number format and quantity to values by initialisation."""
    rows = data.rows(_FILE, ("network", "dtype", "status"), ("seed", *discrepancy.LAPLACIANS, "scale"))

    def values(network: str, dtype: str, key: str) -> Seeds:
        chosen = [r for r in rows if (r["network"], r["dtype"], r["status"]) == (network, dtype, "ok")]
        return {int(row["seed"]): row[key] for row in chosen}

    return values


def _tables(data: Data) -> list[Table]:
    values, theirs = _read(data), published("appendix-b")
    lines = []
    for network in discrepancy.NETWORK_NAMES:
        for way, label in _LABELS.items():
            single, double = (values(network, dtype, way) for dtype in discrepancy.DTYPES)
            shares = [single[seed] / scale for seed, scale in values(network, "float32", "scale").items() if scale]
            line = [TITLES[network], label, scientific(theirs[network].get(way)), scientific(_median(single))]
            share = percent(statistics.median(shares)) if shares else "-"
            lines.append([*line, share, scientific(_median(double)), str(len(single))])
    return [
        Table(
            "Largest difference of the Laplacian from that of PerSampleAD, median over initialisations.",
            ["network", "way", "published", "ours, FP32", "of the largest Laplacian", "ours, FP64", "initialisations"],
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


def _claims(data: Data) -> list[Claim]:
    values, found = _read(data), []
    for network in ("batchnorm", "attention"):
        title, theirs = TITLES[network], published("appendix-b")[network]
        of: dict[str, Any] = {key: values(network, "float32", key) for key in (*discrepancy.LAPLACIANS, "scale")}
        shares = np.array([of["batched_ad"][seed] / scale for seed, scale in of["scale"].items()])
        known = len(shares) > 1 and bool((shares > 0).all())
        wrong = over_seeds(np.log(shares / WRONG)) if known else None
        off = f"off by {percent(float(np.median(shares)))} of the largest Laplacian; " if len(shares) else ""
        told = f"{off}against {100 * WRONG:g} %, where wrong begins"
        text = f"{title}: the derivative of the sum over samples is wrong"
        finding = claims.larger(wrong, "t-test of the logarithms")
        found.append(finding.claim(text, f"off by {theirs['batched_ad']:g}", told, wrong))

        claimed = theirs["batched_ad"] / theirs["batched_fd"]
        closer = compare(of["batched_ad"], of["batched_fd"])
        finding = claims.larger(closer, claimed=claimed)
        text = f"{title}: differences on the whole batch come closer"
        found.append(finding.claim(text, times(claimed), "batched AD / FD on the batch", closer, claimed))

        isolated = compare(of["isolated_taylor"], of["batched_fd"])
        text = f"{title}: isolation comes closer still"
        told = "isolated Taylor / FD on the batch"
        found.append(claims.smaller(isolated).claim(text, "ours", told, isolated))
    return found


EXPERIMENT = Experiment(
    "appendix-b",
    "Whose derivative is it? Networks whose samples influence each other",
    _collect,
    measurements=discrepancy.measurements,
    tables=_tables,
    claims=_claims,
    place=11,
)
