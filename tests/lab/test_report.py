from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dudx.errors import InputError
from dudx.lab.paper.experiments import claims, experiments, looks
from dudx.lab.paper.experiments.claims import Claim, Lost, Ratio
from dudx.lab.paper.experiments.data import Data, write_data
from dudx.lab.paper.experiments.looks import Look
from dudx.lab.paper.experiments.power import power_table
from dudx.lab.paper.experiments.published import published
from dudx.lab.paper.experiments.statistics import (
    Comparison,
    best,
    compare,
    holm,
    seeds_to_exclude,
    seeds_to_see,
)
from dudx.lab.paper.experiments.tables import Cell, Table, counted, percent, scientific, spread, times
from dudx.lab.paper.report import write_report
from dudx.lab.paper.report.document import Document, Judged, Part, Section
from dudx.lab.paper.report.drawing import ratio_picture
from dudx.lab.paper.report.html import page
from dudx.lab.run.settings import make_settings

EXPERIMENTS = experiments()
NOISE = (1.0, 1.1, 0.93, 1.05, 0.97)  # of the seeds, the same for all engines, as points are
JITTER = (0.99, 1.01, 1.0, 1.005, 0.995)


def errors(level: float, jitter: Sequence[float] = (1.0,) * 5) -> dict[int, float]:
    return {seed: level * noise * more for seed, (noise, more) in enumerate(zip(NOISE, jitter, strict=True))}


# -- statistics ------------------------------------------------------------------------------------------------------


def test_a_comparison_is_the_paired_test_of_the_logarithms() -> None:
    a, b = errors(0.02, JITTER), errors(0.01)
    found = compare(a, {**b, 9: 5.0})  # a seed that only one of them has does not count
    assert found is not None
    reference = stats.ttest_rel(np.log(list(a.values())), np.log(list(b.values())))
    assert found.p == pytest.approx(reference.pvalue)
    low, high = reference.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert found.ratio == pytest.approx(2, rel=1e-3)
    assert found.pairs == 5


def test_comparisons_at_the_edge() -> None:
    assert compare({0: 1.0}, {0: 2.0}) is None
    assert compare({}, {0: 2.0}) is None
    equal = compare(errors(0.01), errors(0.01))
    assert equal is not None
    assert not equal.significant
    constant = compare(errors(0.02), errors(0.01))  # the same factor for every seed
    assert constant is not None
    assert constant.significant
    assert constant.ratio == pytest.approx(2)


def test_the_best_is_bold_only_where_something_is_worse() -> None:
    tied = {"ad": errors(0.01), "fd": errors(0.01, JITTER)}
    assert best(tied) == set()
    assert best({**tied, "sfd": errors(0.03, JITTER)}) == {"ad", "fd"}
    assert best({**tied, "sfd": errors(0.003, JITTER)}) == {"sfd"}
    assert best({"ad": errors(0.01), "fd": {}}) == set()
    skewed = {"ad": dict(enumerate([0.6, 0.6, 0.6, 0.6, 9.9])), "fd": dict(enumerate([0.49, 0.49, 0.49, 0.49, 10.5]))}
    assert best({**skewed, "sfd": errors(50.0)}) == {"ad", "fd"}  # smaller in the mean, but larger seed by seed


def test_verdicts_of_comparisons() -> None:
    a_little = compare(errors(0.01001, JITTER), errors(0.01))
    much = compare(errors(0.03, JITTER), errors(0.01))
    assert claims.same(compare(errors(0.01, JITTER), errors(0.01))).verdict == "held"
    assert claims.same(compare(errors(0.0102), errors(0.01))).verdict == "held in part"
    assert claims.same(much).verdict == "did not hold"
    assert claims.same(a_little).verdict == "held"
    assert claims.same(None).verdict == "undecided"
    loose = compare(errors(0.01, (3.0, 0.3, 1.0, 2.0, 0.5)), errors(0.01))
    assert loose is not None
    assert not loose.significant
    # However close the means, anything may be true, whether or not these are all the seeds that were asked for.
    assert [claims.same(loose, complete=all_there).verdict for all_there in (True, False)] == ["undecided"] * 2
    assert [claims.larger(loose, complete=all_there).verdict for all_there in (True, False)] == ["undecided"] * 2
    assert [claims.smaller(much).verdict, claims.larger(much).verdict] == ["did not hold", "held"]
    assert [claims.smaller(a_little).verdict, claims.larger(a_little).verdict] == ["did not hold", "did not hold"]
    assert [judged(loose).verdict for judged in (claims.smaller, claims.larger)] == ["undecided"] * 2
    two = compare({0: 1.0, 1: 1.1}, {0: 1.0, 1: 1.1})
    assert [claims.same(two, complete=all_there).verdict for all_there in (True, False)] == ["held", "undecided"]
    # Seeds that are missing do not matter where those that are there exclude what is claimed.
    assert claims.smaller(a_little, claimed=0.8, complete=False).verdict == "did not hold"
    assert claims.larger(a_little, claimed=3.0, complete=False).verdict == "did not hold"
    assert claims.larger(much, claimed=30.0).verdict == "held in part"  # much less than claimed
    assert [claims.at_least(r, 2.0) for r in (3.0, 1.5, 1.45, 1.2, None)] == [
        *("held", "held", "held in part", "did not hold", "undecided")
    ]
    assert [claims.at_least(r, 1000.0) for r in (800.0, 40.0, 20.0)] == ["held", "held in part", "did not hold"]


def test_runs_that_did_not_finish_speak_against_their_method() -> None:
    better, worse = compare(errors(0.003, JITTER), errors(0.01)), compare(errors(0.03, JITTER), errors(0.01))
    equal = compare(errors(0.01, JITTER), errors(0.01))
    first, second, both = Lost(2, 0), Lost(0, 2), Lost(1, 1)
    assert [claims.smaller(better, lost=lost)[0] for lost in (first, second, both)] == ["held in part", "held", "held"]
    assert [claims.larger(worse, lost=lost)[0] for lost in (first, second, both)] == ["held", "held in part", "held"]
    few, many = Lost(2, 0), (Lost(3, 0), Lost(0, 3))
    assert [claims.smaller(None, lost=lost)[0] for lost in many] == ["did not hold", "held"]
    assert [claims.larger(None, lost=lost)[0] for lost in many] == ["held", "did not hold"]
    assert [claims.same(None, lost)[0] for lost in many] == ["did not hold", "did not hold"]
    assert [judged(None, lost=few)[0] for judged in (claims.smaller, claims.larger, claims.same)] == ["undecided"] * 3
    assert [claims.same(equal, lost)[0] for lost in (first, both)] == ["held in part", "held"]
    assert "runs that did not finish: 2 of the first, 0 of the second" in claims.smaller(better, lost=first)[1]


def test_networks_that_learned_nothing_decide_nothing() -> None:
    equal, worse = compare(errors(0.7, JITTER), errors(0.7)), compare(errors(0.9, JITTER), errors(0.01))
    for judged in (claims.same(equal), claims.smaller(equal, claimed=0.5)):
        assert judged.collapsed(5, 5, 5).verdict == judged.collapsed(3, 5, 5).verdict == "undecided"
        assert judged.collapsed(0, 0, 5) == judged
    # Where one method collapses and the other does not, they do differ.
    assert claims.larger(worse).collapsed(5, 0, 5).verdict == "held in part"
    assert claims.smaller(worse).collapsed(5, 0, 5).verdict == "did not hold"
    # A correction for many claims does not make up for it.
    consistent = claims.same(compare(errors(0.0102), errors(0.01)))
    assert consistent.otherwise == "held"
    assert consistent.collapsed(1, 0, 5).otherwise == "held in part"


def test_a_change_is_flat_if_every_method_says_so() -> None:
    def change(ratio: float, width: float = 1.01, p: float = 0.5) -> Comparison:
        return Comparison(ratio, ratio / width, ratio * width, p, 5)

    flat, steep, loose = change(1.02), change(3.0, p=0.001), change(1.1, 3.0)
    assert claims.flat([flat, flat], 1.25) == "held"
    assert claims.flat([steep, steep], 1.25) == "did not hold"
    assert claims.flat([flat, steep], 1.25) == "held in part"
    assert claims.flat([flat, flat], 1.25, lost=1) == claims.flat([flat, change(1.1, 1.5)], 1.25) == "held in part"
    assert [claims.flat([flat, loose], 1.25, complete) for complete in (True, False)] == ["undecided"] * 2
    assert claims.flat([flat, None], 1.25) == claims.flat([], 1.25) == "undecided"


# -- many claims, and how many seeds they take -------------------------------------------------------------------------


def test_holm_is_step_down() -> None:
    assert holm([0.04, 0.011, 0.03, 0.001]) == [False, True, False, True]  # against 0.05, 0.05/3, 0.05/2, 0.05/4
    assert holm([0.04]) == [True]
    assert holm([]) == []
    assert holm([0.02, 0.03]) == [True, True]


def test_a_verdict_that_is_not_significant_among_many_is_the_other_one() -> None:
    made = [Claim(f"c{n}", "x", "held", "", p, "held in part") for n, p in enumerate((0.001, 0.04, 0.03))]
    without = Claim("d", "x", "did not hold", "")
    assert [claim.verdict for claim in claims.corrected([*made, without])] == [
        *("held", "held in part", "held in part", "did not hold")
    ]
    assert claims.corrected(made[1:2])[0].verdict == "held"
    assert [claim.evidence for claim in claims.corrected(made)] == [
        *("", *["; not significant among the 3 tests of this part"] * 2)
    ]


@pytest.mark.parametrize(("ratio", "spread"), [(3.0, 0.6), (0.79, 0.25), (1.5, 0.9)])
def test_so_many_seeds_see_a_difference_as_often_as_promised(ratio: float, spread: float) -> None:
    seeds = seeds_to_see(ratio, spread)
    assert seeds is not None
    generator = np.random.default_rng(0)

    def seen(count: int) -> float:
        tries = generator.normal(math.log(ratio), spread, (20_000, count))
        test: Any = stats.ttest_1samp(tries, 0.0, axis=1)
        return float(np.mean(test.pvalue < 0.05))

    assert seen(seeds) == pytest.approx(0.8, abs=0.12)
    assert seen(seeds) > 0.79
    assert seeds == 2 or seen(seeds - 1) < 0.8


@pytest.mark.parametrize(("spread", "level"), [(0.5, 0.05), (0.29, 0.05), (0.157, 0.05 / 8), (1.1, 0.05)])
def test_so_many_seeds_exclude_a_factor_as_often_as_promised(spread: float, level: float) -> None:
    seeds = seeds_to_exclude(2.0, spread, level)
    assert seeds is not None
    generator = np.random.default_rng(0)

    def excluded(count: int) -> float:
        tries = generator.normal(0.0, spread, (20_000, count))
        test: Any = stats.ttest_1samp(tries, 0.0, axis=1)
        low, high = test.confidence_interval(1 - level)
        return float(np.mean((low > -math.log(2)) & (high < math.log(2))))

    assert excluded(seeds) > 0.79
    assert excluded(seeds - 1) < 0.81


def test_a_factor_that_no_number_of_seeds_excludes() -> None:
    assert seeds_to_exclude(1.0001, 1.0) is None


def test_the_seeds_a_verdict_takes_are_computed_from_the_first_few() -> None:
    ad = dict.fromkeys(range(10), 0.01)
    sfd = {seed: 0.01 * factor for seed, factor in enumerate((1.0, 2.0, 4.0, *[900.0] * 7))}
    row = power_table({"ad": ad, "sfd": sfd}, "burgers", asked=10).rows[0]
    expected = [seeds_to_see(4.23 / 1.36, math.log(2), level) for level in (0.05, 0.05 / 12)]
    assert row[2:] == ["2.00×", *map(str, expected), "10", "10"]
    fd = power_table({"ad": ad, "fd": sfd}, "burgers", asked=10).rows[0]
    # An interval is not corrected for the number of claims.
    assert fd[3] == fd[4] == str(seeds_to_exclude(2.0, math.log(2)))
    assert power_table({"ad": {0: 0.1}, "sfd": {0: 0.2}}, "burgers", 10).rows[0][2:5] == ["-", "-", "-"]


# -- looks on the way --------------------------------------------------------------------------------------------------


def test_an_error_at_a_mark_is_the_mean_of_the_last_looks_before_it() -> None:
    way = [Look(float(n), 10 * n, 1.0 / n) for n in range(1, 101)]
    last = [1.0 / n for n in range(46, 51)]
    assert looks.error_at(way, "cpu_seconds", 50.0) == pytest.approx(math.prod(last) ** (1 / 5))
    assert looks.error_at(way, "epoch", 500) == looks.error_at(way, "cpu_seconds", 50.0)
    assert looks.error_at(way, "cpu_seconds", 5.0) == pytest.approx(0.2)
    assert looks.error_at(way, "cpu_seconds", 120.0) is None
    assert looks.error_at([], "epoch", 1) is None
    assert looks.reached(way, "cpu_seconds", 0.1) == 10.0
    assert looks.reached(way, "epoch", 1e-9) is None
    assert looks.common_end([way, way[:59]], "epoch") == 580
    assert looks.common_end([[Look(59.5, 7, 1.0)]], "cpu_seconds") == 60
    assert looks.common_end([[Look(None, 7, 1.0)]], "cpu_seconds") == 0


# -- claims of each experiment, on data made up so that they hold, and so that they do not ----------------------------


def run_rows(problem: str, levels: dict[str, dict[int, float]], **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": "-".join([problem, engine, *map(str, more.values()), str(seed)]),
            **{"problem": problem, "engine": engine, "network": "mlp", "coupled": "isolate", "recalibrate": 250},
            **{"seed": seed, "status": "finished", "epochs": 10, "l2_relative": error, "smape": 5.0, "max_error": 0.1},
            **{"seconds": 1.0, "step": "", "reason": "", **more},
        }
        for engine, by_seed in levels.items()
        for seed, error in by_seed.items()
    ]


def put(folder: Path, experiment: str, **files: list[dict[str, Any]]) -> Data:
    """Data of an experiment, with what stands beside all data."""
    data = Data(folder / "data" / experiment)
    for name, rows in files.items():
        write_data(data.folder / f"{name}.csv", rows)
    settings = make_settings("poisson", "smoke").model_dump(exclude_none=True)
    names = [row["name"] for row in next(iter(files.values())) if "name" in row]
    write_data(data.folder / "configs.json", dict.fromkeys(names, settings))
    write_data(data.folder / "environment.json", {"1": {"dudx": "0.1.0", "torch": "2", "commit": "abc", "times": 3}})
    return data


def verdicts(data: Data, experiment: str) -> dict[str, str]:
    found: list[Claim] = EXPERIMENTS[experiment].claims(data)
    return {claim.text: claim.verdict for claim in found}


@pytest.mark.parametrize(
    ("sfd", "expected"),
    [(0.005, "held"), (0.02, "did not hold"), (0.01, "did not hold")],
    ids=["better", "worse", "same"],
)
def test_accuracy_on_poisson(sfd: float, expected: str, tmp_path: Path) -> None:
    levels = {"ad": errors(0.01), "fd": errors(0.01, JITTER), "sfd": errors(sfd, JITTER)}
    found = verdicts(put(tmp_path, "table-poisson", runs=run_rows("poisson", levels)), "table-poisson")
    assert found == {
        "Poisson 2D: FD (eq. eFD) is as accurate as AD": "held",
        "Poisson 2D: sFD is more accurate than AD": expected,
    }


def test_accuracy_on_burgers(tmp_path: Path) -> None:
    levels = {"ad": errors(0.01), "fd": errors(0.05, JITTER), "efd": errors(0.01, JITTER), "sfd": errors(0.04, JITTER)}
    found = verdicts(put(tmp_path, "table-burgers", runs=run_rows("burgers", levels)), "table-burgers")
    assert found == {
        "Burgers 1D: FD is as accurate as AD": "did not hold",
        "Burgers 1D: eFD is as accurate as AD": "held",
        "Burgers 1D: sFD is less accurate than AD": "held",
    }


def interval_rows(problem: str, engine: str, error_at: Callable[[int], float]) -> list[dict[str, Any]]:
    return [
        row
        for interval in (1, 10, 100, 500)
        for row in run_rows(problem, {engine: errors(error_at(interval), JITTER)}, recalibrate=interval)
    ]


def test_flatness_in_the_interval(tmp_path: Path) -> None:
    flat = interval_rows("burgers", "fd", lambda interval: 0.01 if interval < 500 else 0.02)
    steep = interval_rows("burgers", "sfd", lambda interval: 0.01 * interval**0.2)
    text = "Burgers 1D: the error is flat in the recalibration interval up to 100 epochs"
    twice = "Burgers 1D: sFD fails when steps are calibrated twice in a training"
    assert verdicts(put(tmp_path / "a", "fig-5", runs=flat), "fig-5") == {text: "held"}
    assert verdicts(put(tmp_path / "b", "fig-5", runs=steep), "fig-5") == {text: "did not hold", twice: "held"}
    assert verdicts(put(tmp_path / "c", "fig-5", runs=flat + steep), "fig-5")[text] == "held in part"
    stable = interval_rows("burgers", "sfd", lambda interval: 0.01)
    assert verdicts(put(tmp_path / "d", "fig-5", runs=stable), "fig-5") == {text: "held", twice: "did not hold"}
    blown = [{**row, "status": "diverged"} if row["recalibrate"] == 500 else row for row in stable]
    assert verdicts(put(tmp_path / "e", "fig-5", runs=blown), "fig-5") == {text: "held", twice: "held"}
    torn = [{**row, "status": "diverged"} if row["recalibrate"] == 10 and row["seed"] else row for row in stable]
    assert verdicts(put(tmp_path / "f", "fig-5", runs=torn), "fig-5")[text] == "undecided"


def cost_rows(batched_ad: float, memory: float) -> list[dict[str, Any]]:
    """FD takes 1 ms and 10 MiB; the batched idiom takes as much more, and the loop a thousand times as much."""
    factors = {"batched AD": (batched_ad, memory), "per-sample AD": (1000.0, 60.0), "FD": (1.0, 1.0)}
    return [
        {"network": network, "way": way, "batch": batch, "status": "ok"}
        | {"seconds": 1e-3 * batch * time, "megabytes": 10 * batch * space, "reason": ""}
        for network in ("mlp", "batchnorm")
        for way, (time, space) in factors.items()
        for batch in (64, 128, 256)
    ]


def test_cost(tmp_path: Path) -> None:
    faster, less = (
        "plain MLP: FD is faster than batched AD at every batch",
        "plain MLP: a step with FD takes half the memory of one with batched AD",
    )
    good = verdicts(put(tmp_path / "a", "fig-4", cost=cost_rows(2.5, 2.1)), "fig-4")
    assert (good[faster], good[less]) == ("held", "held")
    assert good["MLP with BN: per-sample AD takes one to two orders of magnitude more memory than FD"] == "held"
    assert (
        good["MLP with BN: per-sample AD is two to three orders of magnitude slower than FD"] == "held in part"
    )  # 1000 of 1600
    bad = verdicts(put(tmp_path / "b", "fig-4", cost=cost_rows(0.7, 0.9)), "fig-4")
    assert (bad[faster], bad[less]) == ("did not hold", "did not hold")
    mixed = cost_rows(2.5, 1.45)
    mixed[0]["seconds"] = 1e-6  # at one batch AD is faster
    found = verdicts(put(tmp_path / "c", "fig-4", cost=mixed), "fig-4")
    assert (found[faster], found[less]) == ("held in part", "held in part")


def discrepancy_rows(batched_ad: float, batched_fd: float) -> list[dict[str, Any]]:
    return [
        {"network": network, "seed": seed, "dtype": dtype, "status": "ok", "loss": 0.1, "scale": 2.0, "reason": ""}
        | {"batched_ad": batched_ad * noise, "batched_fd": batched_fd * noise * jitter}
        | {"isolated_ad": 1e-7, "isolated_fd": 1e-3, "isolated_taylor": 1e-7 * jitter}
        for network in ("mlp", "batchnorm", "attention")
        for dtype in ("float32", "float64")
        for seed, (noise, jitter) in enumerate(zip(NOISE, JITTER, strict=True))
    ]


def test_coupled_networks(tmp_path: Path) -> None:
    wrong = "MLP with attention: the derivative of the sum over samples is wrong"
    closer = "MLP with attention: differences on the whole batch come closer"
    found = verdicts(put(tmp_path / "a", "appendix-b", discrepancy=discrepancy_rows(8.0, 0.7)), "appendix-b")
    assert (found[wrong], found[closer]) == ("held", "held")
    assert found["MLP with BN: isolation comes closer still"] == "held"
    found = verdicts(put(tmp_path / "b", "appendix-b", discrepancy=discrepancy_rows(1e-4, 2e-4)), "appendix-b")
    assert (found[wrong], found[closer]) == ("did not hold", "did not hold")


def test_training_coupled_networks(tmp_path: Path) -> None:
    rows = run_rows("poisson", {"ad": errors(0.02), "taylor": errors(0.02, JITTER)}, network="batchnorm")
    rows += run_rows("poisson", {"ad": errors(0.2, JITTER)}, network="batchnorm", coupled="ignore")
    found = verdicts(put(tmp_path, "coupled-training", runs=rows), "coupled-training")
    assert found["MLP with BN: isolated Taylor trains as well as isolated AD"] == "held"
    assert found["MLP with BN: trained by the derivative of the sum, the solution is worse"] == "held"
    assert found["MLP with attention: trained by the derivative of the sum, the solution is worse"] == "undecided"
    diverged = [{**row, "status": "diverged"} if row["coupled"] == "ignore" else row for row in rows]
    found = verdicts(put(tmp_path / "b", "coupled-training", runs=diverged), "coupled-training")
    assert found["MLP with BN: trained by the derivative of the sum, the solution is worse"] == "held"


@pytest.mark.parametrize(("constant", "expected"), [(2.5, "held"), (40.0, "did not hold")])
def test_the_constant_of_the_best_step(constant: float, expected: str, tmp_path: Path) -> None:
    rows = [
        {
            "format": name,
            "network": seed,
            "order": order,
            "status": "ok",
            "epsilon": epsilon,
            "rmse": 1e-3,
            "reason": "",
        }
        | {"step": constant * epsilon ** (1 / (order + 2))}
        for name, epsilon in (("fp64", 2.2e-16), ("fp32", 1.2e-7), ("bf16", 7.8e-3))
        for seed in range(3)
        for order in (1, 2)
    ]
    (claim,) = EXPERIMENTS["fig-3"].claims(put(tmp_path, "fig-3", optima=rows))
    assert claim.verdict == expected
    assert f"FP32 {constant:.1f}" in claim.evidence


# -- tables ------------------------------------------------------------------------------------------------------------


def test_tables_as_markdown_and_csv() -> None:
    table = Table("Errors.", ["method", "L2"], [["AD", Cell("1.0 ± 0.1", True)], ["F|D", "2"]], ["A note."])
    assert table.markdown() == (
        "Errors.\n\n| method | L2 |\n| --- | ---: |\n| AD | **1.0 ± 0.1** |\n| F\\|D | 2 |\n\nA note.\n"
    )
    assert table.csv() == "method,L2\nAD,1.0 ± 0.1\nF|D,2\n"


def test_how_numbers_read() -> None:
    assert [spread([], 2), spread([0.0123], 2, 100), spread([1.0, 3.0], 1)] == ["-", "1.23", "2.0 ± 1.4"]
    assert [scientific(v) for v in (None, 0.0, 8.2e-4, 0.79, 12345.0)] == ["-", "0", "8.2e-04", "0.79", "1.2e+04"]
    assert [times(v) for v in (None, 1.5, 14.0, 360.0)] == ["-", "1.50×", "14.0×", "360×"]
    assert [percent(v) for v in (2.5, 0.123, 0.0123)] == ["250 %", "12 %", "1.2 %"]
    statuses = ["finished", "diverged", "finished", "failed"]
    assert counted([{"status": status} for status in statuses]) == "2 of 4, 1 diverged, 1 failed"


# -- the report --------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Checks that elements are closed in order, and collects what a page refers to."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag == "img":
            assert given["alt"]
        self.sources += [given[key] or "" for key in ("src",) if key in given]
        self.links |= {given["href"] or ""} if "href" in given else set()
        self.anchors |= {f"#{given['id']}"} if "id" in given else set()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def reported(tmp_path: Path) -> Path:
    levels = {"ad": errors(0.02), "fd": errors(0.02, JITTER), "sfd": errors(0.01, JITTER), "taylor": errors(0.02)}
    put(tmp_path, "table-poisson", runs=run_rows("poisson", levels))
    put(tmp_path, "fig-4", cost=cost_rows(2.5, 2.1))
    assert write_report(tmp_path) == [tmp_path / "report.md", tmp_path / "report.html"]
    return tmp_path


def test_a_report_says_what_held_with_both_numbers_and_what_is_missing(reported: Path) -> None:
    text = (reported / "report.md").read_text()
    (claim,) = re.findall(r"^\| Poisson 2D: sFD is more accurate than AD .*$", text, re.MULTILINE)
    assert "| AD 1.41 %, sFD 1.11 % | **held** | sFD / AD: 0.5" in claim
    assert "paired t-test of the logarithms" in claim
    assert re.search(r"^\| sFD \|.*\| \*\*1\.0\d ± 0\.0\d\*\* \| 0\.9\d* \| 1\.11 ± 0\.39 \|", text, re.MULTILINE)
    missing = next(line for line in text.splitlines() if line.startswith("Missing"))
    for name in EXPERIMENTS:
        assert (name in missing) == (name not in ("table-poisson", "fig-4"))
    assert "![fig-4: Time and memory of a training step](figures/fig-4.png)" in text
    assert (reported / "figures" / "fig-4.png").exists()


def test_the_page_is_whole_and_needs_nothing_else(reported: Path) -> None:
    text = (reported / "report.html").read_text()
    page = Page(text)
    assert len(page.sources) == 2
    assert all(source.startswith("data:image/png;base64,iVBOR") for source in page.sources)
    assert {link for link in page.links if link.startswith("#")} <= page.anchors
    files = {link for link in page.links if not link.startswith("#")}
    assert "data/table-poisson/runs.csv" in files
    assert all((reported / link).is_file() for link in files)
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text
    assert text.count('style="--width: ') == 2  # of pictures, whose letters are as large whatever their panels
    assert '<p class="verdict held">held</p><p>Poisson 2D: sFD is more accurate than AD</p>' in text
    decided = text.count('<p class="verdict') - text.count('<p class="verdict undecided"')
    assert text.count('<svg viewBox="0 0 320 58" class="ratio"') == decided > 5
    assert text.index('class="summary"') < text.index('class="overview"') < text.index("<h2")
    assert text.count("<li>", text.index('class="summary"'), text.index("<figure>")) == 10


def test_what_is_written_on_the_page_is_text_and_not_markup(tmp_path: Path) -> None:
    rows = run_rows("poisson", {"ad": errors(0.02), "fd": errors(0.02)})
    put(tmp_path, "table-poisson", runs=rows)
    write_data(tmp_path / "data/table-poisson/environment.json", {"1": {"processor": "<script>x</script>"}})
    write_report(tmp_path)
    assert "<script>x" not in (tmp_path / "report.html").read_text()


def test_a_command_breaks_between_its_words_alone() -> None:
    text = page(Document("a", ["Run `dudx reproduce --profile cpu`."]))
    assert "<code>dudx <wbr>reproduce <wbr>--profile <wbr>cpu</code>" in text


def test_a_ratio_close_to_1_is_told_beside_its_dot() -> None:
    assert ">1.04×</text>" in ratio_picture(Ratio("a / b", 1.04, 0.9, 1.2))
    assert ">0.971×</text>" in ratio_picture(Ratio("a / b", 0.971, 0.8, 1.2, 1.8))
    assert ">2×</text>" in ratio_picture(Ratio("a / b", 2.002, 1.8, 2.3))


def test_a_folder_without_data_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There are no data in"):
        write_report(tmp_path)


def test_published_numbers_are_those_of_the_paper() -> None:
    assert published("table-poisson")["sfd"]["l2_relative"] == [1.11, 0.39]
    assert published("table-heat")["fd"]["max_error"] == [0.564, 0.018]
    assert published("appendix-b")["attention"] == {"batched_ad": 7.4, "batched_fd": 2.1}
    assert published("coupled-training") == {}


def test_what_users_wrote_is_neither_a_tag_nor_a_link_in_a_report() -> None:
    wrote = "<script>alert(1)</script> [click](javascript:alert(1))\n# |"
    table = Table(wrote, ["reason"], [[wrote]], [wrote])
    claim = Claim(wrote, wrote, "held", wrote, ratio=Ratio(wrote, 1.0, 1.0, 1.0))
    part = Part(wrote, [wrote], [Judged(claim, wrote, "data.csv")], [Section(wrote, [wrote], [table])])
    document = Document(wrote, [wrote], [part], Table("", ["topic"], [[wrote]]))
    text = document.markdown(Path())
    assert "<script" not in text
    assert "](" not in text.replace(r"\](", "")
    assert sum(line.startswith("#") for line in text.splitlines()) == 3
    assert "<script>alert" not in page(document)
    assert page(document).count("<script") == 1  # our own
    assert "p < 0.05" in Table("p < 0.05", ["a"], []).markdown()
