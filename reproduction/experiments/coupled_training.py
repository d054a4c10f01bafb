"""Training of networks whose samples influence each other, by each definition of their derivatives (not published)."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dudx.lab.run.engine_table import engine_label
from dudx.lab.sweep.sweep_run import Run
from reproduction.analysis import claims, run_rows
from reproduction.analysis.claims import Claim, Lost
from reproduction.analysis.figures import engine_style, panels, plain_log
from reproduction.analysis.statistics import Seeds, compare
from reproduction.analysis.tables import Table, counted, in_percent, median, spread
from reproduction.experiment import Experiment, ExperimentResults, named
from reproduction.measurements.step_cost import TITLES
from reproduction.profile import CoupledTrainings, Profile

#: Engines of the usual idiom, which ignores the influence.
_IGNORING = ["ad", "fd"]
#: Label of an engine, by the setting `coupled`.
_LABELS = {
    "isolate": "isolated {}",
    "fixed": "{}, fixed context",
    "running": "{}, running statistics",
    "ignore": "{} on the batch (wrong)",
}
#: Claims on the settings `coupled` that should do worse.
_WORSE = {
    "ignore": "trained by the derivative of the sum, the solution is worse",
    "isolate": "against a context that changes with the batch, the solution is worse",
    "running": "normalised by running statistics while training, the solution is worse",
}
_SEEDS_SHOWN = 5
#: Network, setting `coupled`, engine.
Group = tuple[str, str, str]


def _runs(profile: Profile) -> list[Run]:
    plan = profile.coupled
    engines_of = plan.coupled or {"isolate": plan.engines, "ignore": _IGNORING}
    of_all = [("mlp", engine, "isolate") for engine in plan.engines]
    of_all += [
        (network, engine, coupled)
        for network in ("batchnorm", "attention")
        for coupled, engines in engines_of.items()
        for engine in engines
        if network == "batchnorm" or coupled != "running"  # attention has no running statistics
    ]
    return [
        named(profile.settings("poisson", **settings, network=network, engine=engine, coupled=coupled, seed=seed))
        for network, engine, coupled in of_all
        for seeds, settings in [_settings(plan, network, coupled)]
        for seed in plan.seed_numbers(seeds)
    ]


def _settings(plan: CoupledTrainings, network: str, coupled: str) -> tuple[int, dict[str, Any]]:
    """Number of seeds and settings: those of all runs, of a network, of a setting `coupled`, and of both."""
    of_it = (plan.only.get(name, {}) for name in (network, coupled, f"{network} {coupled}"))
    settings = functools.reduce(operator.or_, of_it, dict(plan.settings))
    return settings.pop("seeds", plan.seeds), settings


def _groups(rows: Sequence[run_rows.RunRow]) -> dict[Group, list[run_rows.RunRow]]:
    """Runs by network, setting `coupled` and engine."""
    found: dict[Group, list[run_rows.RunRow]] = {}
    for network in TITLES:
        for row in rows:
            if row["network"] == network:
                found.setdefault((network, row["coupled"], row["engine"]), []).append(row)
    return found


def _label(network: str, coupled: str, engine: str) -> str:
    name = engine_label(engine).removesuffix(" (ours)")
    return name if network == "mlp" else _LABELS[coupled].format(name)


def _tables(results: ExperimentResults) -> list[Table]:
    rows = results.runs
    lines = []
    for key, mine in _groups(rows).items():
        errors, largest = (run_rows.by_seed(mine, metric) for metric in ("l2_relative", "max_error"))
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
                f"{run_rows.scale(rows)}; batch norm and attention have 2 layers.",
                *run_rows.missing_note(rows),
            ],
            words=2,
        )
    ]


def _figure(results: ExperimentResults, path: Path) -> None:
    groups = {key: run_rows.by_seed(rows) for key, rows in _groups(results.runs).items()}
    with panels(path, 1, 1, (8, 0.9 + 0.32 * len(groups))) as (_, ((ax,),)):
        for height, ((_, coupled, engine), errors) in enumerate(groups.items()):
            colour, marker = engine_style(engine)
            filled = "none" if coupled == "ignore" else colour
            values = [100 * error for error in errors.values()]
            ax.plot(values, [height] * len(values), marker, color=colour, markerfacecolor=filled, markersize=6)
        ax.set_yticks(range(len(groups)), [f"{TITLES[key[0]]}: {_label(*key)}" for key in groups])
        ax.invert_yaxis()
        plain_log(ax, y=None)
        ax.set(xlabel="relative L2 error on Poisson [%], one mark per seed")


def _claims(results: ExperimentResults) -> list[Claim]:
    groups = _groups(results.runs)
    errors: dict[Group, Seeds] = {key: run_rows.by_seed(rows) for key, rows in groups.items()}

    def missing(*keys: Group) -> list[str]:
        return [name for key in keys for name in run_rows.missing(groups.get(key, []))]

    found = []
    for network in ("batchnorm", "attention"):
        title = TITLES[network]
        right = next(
            (each for each in ("fixed", "isolate") if any(key[:2] == (network, each) for key in groups)), "isolate"
        )
        base = (network, right, next((e for e in ("ad", "taylor") if (network, right, e) in groups), "ad"))

        def ratio(coupled: str, engine: str, network: str = network, base: Group = base) -> Any:
            keys = (network, coupled, engine), base
            lacking = missing(*keys)
            names = " / ".join(_label(*key) for key in keys)
            lost = Lost(*(run_rows.lost(groups.get(key, [])) for key in keys))
            return compare(*(errors.get(key, {}) for key in keys)), lost, lacking, names

        for coupled, words in _WORSE.items():
            engine = next((engine for engine in ("ad", "taylor") if (network, coupled, engine) in groups), None)
            if coupled == "ignore" or (coupled != right and engine):
                compared, lost, lacking, names = ratio(coupled, engine or "ad")
                finding = claims.larger(compared, lost=lost, complete=not lacking)
                found.append(finding.claim(f"{title}: {words}", "ours", names, compared, missing=lacking))
        for engine in ("ad", "fd", "taylor"):
            if engine != base[2] and (network, right, engine) in groups:
                compared, lost, lacking, names = ratio(right, engine)
                finding = claims.same(compared, lost, complete=not lacking)
                text = f"{title}: {_label(network, right, engine)} trains as well as {_label(*base)}"
                found.append(finding.claim(text, "ours", names, compared, missing=lacking))
    return found


EXPERIMENT = Experiment(
    "coupled-training",
    "Training networks whose samples influence each other",
    runs=_runs,
    tables=_tables,
    figure=_figure,
    claims=_claims,
    position=12,
)
