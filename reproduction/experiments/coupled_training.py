"""Ours: networks whose samples influence each other solve Poisson's equation, in each way that there is to see them."""

from __future__ import annotations

import functools
import operator
from pathlib import Path
from typing import Any

from dudx.lab.run.engine_table import engine_label
from dudx.lab.sweep.sweep_run import Run
from reproduction.experiments import claims, trained
from reproduction.experiments.base import Experiment, named
from reproduction.experiments.claims import Claim, Lost
from reproduction.experiments.data import Data
from reproduction.experiments.fig_4 import TITLES
from reproduction.experiments.pictures import engine_style, panels, plain_log
from reproduction.experiments.profile import CoupledTrainings, Profile
from reproduction.experiments.statistics import Seeds, compare
from reproduction.experiments.tables import Table, counted, in_percent, median, spread

#: Engines that the usual idiom, which ignores the influence, is tried with.
_IGNORING = ["ad", "fd"]
#: What stands beside an engine's name, for each way to see a network.
_LABELS = {
    "isolate": "isolated {}",
    "fixed": "{}, fixed context",
    "running": "{}, running statistics",
    "ignore": "{} on the batch (wrong)",
}
#: What is claimed of ways that should do worse.
_WORSE = {
    "ignore": "trained by the derivative of the sum, the solution is worse",
    "isolate": "against a context that changes with the batch, the solution is worse",
    "running": "normalised by running statistics while training, the solution is worse",
}
_SEEDS_SHOWN = 5


def _runs(profile: Profile) -> list[Run]:
    plan = profile.coupled
    ways = plan.ways or {"isolate": plan.engines, "ignore": _IGNORING}
    of_all = [("mlp", engine, "isolate") for engine in plan.engines]
    of_all += [
        (network, engine, way)
        for network in ("batchnorm", "attention")
        for way, engines in ways.items()
        for engine in engines
        if network == "batchnorm" or way != "running"  # which attention has none of
    ]
    return [
        named(profile.settings("poisson", **settings, network=network, engine=engine, coupled=way, seed=seed))
        for network, engine, way in of_all
        for seeds, settings in [_settings(plan, network, way)]
        for seed in plan.seed_numbers(seeds)
    ]


def _settings(plan: CoupledTrainings, network: str, way: str) -> tuple[int, dict[str, Any]]:
    """How many seeds, and what all have, then what a network has, a way, and a network seen in a way."""
    of_it = (plan.only.get(name, {}) for name in (network, way, f"{network} {way}"))
    settings = functools.reduce(operator.or_, of_it, dict(plan.settings))
    return settings.pop("seeds", plan.seeds), settings


def _groups(rows: list[dict[str, Any]]) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for network in TITLES:
        for row in rows:
            if row["network"] == network:
                found.setdefault((network, row["coupled"], row["engine"]), []).append(row)
    return found


def _label(network: str, coupled: str, engine: str) -> str:
    name = engine_label(engine).removesuffix(" (ours)")
    return name if network == "mlp" else _LABELS[coupled].format(name)


def _tables(data: Data) -> list[Table]:
    rows = trained.read(data)
    lines = []
    for key, mine in _groups(rows).items():
        errors, largest = (trained.by_seed(mine, metric) for metric in ("l2_relative", "max_error"))
        each = ", ".join(median([value]) for value in list(errors.values())[:_SEEDS_SHOWN])
        more = ", …" if len(errors) > _SEEDS_SHOWN else ""
        line = [TITLES[key[0]], _label(*key), in_percent(list(errors.values())), each + more or "-"]
        lines.append([*line, spread(list(largest.values()), 3), counted(mine)])
    columns = ["network", "derivatives", "L2 relative (%)", "by seed", "max error", "finished"]
    return [
        Table(
            "Poisson 2D by network and derivatives, mean ± standard deviation over the seeds. Not in the paper.",
            columns,
            lines,
            [
                f"{trained.scale(data, [row['name'] for row in rows])}; batch norm and attention have 2 layers.",
                *trained.told_missing(rows),
            ],
            words=2,
        )
    ]


def _figure(data: Data, path: Path) -> None:
    groups = {key: trained.by_seed(rows) for key, rows in _groups(trained.read(data)).items()}
    with panels(path, 1, 1, (8, 0.9 + 0.32 * len(groups))) as (_, ((ax,),)):
        for height, ((_, coupled, engine), errors) in enumerate(groups.items()):
            colour, marker = engine_style(engine)
            filled = "none" if coupled == "ignore" else colour
            values = [100 * error for error in errors.values()]
            ax.plot(values, [height] * len(values), marker, color=colour, markerfacecolor=filled, markersize=6)
        ax.set_yticks(range(len(groups)), [f"{TITLES[key[0]]}: {_label(*key)}" for key in groups])
        ax.invert_yaxis()
        plain_log(ax, y=None)
        ax.set(xlabel="relative L2 error on Poisson [%], a mark for each seed")


def _claims(data: Data) -> list[Claim]:
    groups = _groups(trained.read(data))
    errors: dict[tuple[str, str, str], Seeds] = {key: trained.by_seed(rows) for key, rows in groups.items()}

    def missing(network: str, *ways: tuple[str, str]) -> list[str]:
        return [name for way in ways for name in trained.missing(groups.get((network, *way), []))]

    found = []
    for network in ("batchnorm", "attention"):
        title = TITLES[network]
        right = next(
            (way for way in ("fixed", "isolate") if any(key[:2] == (network, way) for key in groups)), "isolate"
        )
        base = (right, next((engine for engine in ("ad", "taylor") if (network, right, engine) in groups), "ad"))

        def ratio(way: str, engine: str, network: str = network, base: tuple[str, str] = base) -> Any:
            keys = (network, way, engine), (network, *base)
            lacking = missing(network, (way, engine), base)
            names = " / ".join(_label(*key) for key in keys)
            lost = Lost(*(trained.lost(groups.get(key, [])) for key in keys))
            return compare(*(errors.get(key, {}) for key in keys)), lost, lacking, names

        for way, words in _WORSE.items():
            engine = next((engine for engine in ("ad", "taylor") if (network, way, engine) in groups), None)
            if way == "ignore" or (way != right and engine):
                compared, lost, lacking, names = ratio(way, engine or "ad")
                finding = claims.larger(compared, lost=lost, complete=not lacking)
                found.append(finding.claim(f"{title}: {words}", "ours", names, compared, missing=lacking))
        for engine in ("ad", "fd", "taylor"):
            if engine != base[1] and (network, right, engine) in groups:
                compared, lost, lacking, names = ratio(right, engine)
                finding = claims.same(compared, lost, complete=not lacking)
                text = f"{title}: {_label(network, right, engine)} trains as well as {_label(network, *base)}"
                found.append(finding.claim(text, "ours", names, compared, missing=lacking))
    return found


EXPERIMENT = Experiment(
    "coupled-training",
    "Training networks whose samples influence each other",
    trained.collect_runs,
    runs=_runs,
    tables=_tables,
    figure=_figure,
    claims=_claims,
    place=12,
)
