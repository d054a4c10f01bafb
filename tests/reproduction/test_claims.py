"""Claims of each experiment, on data made up so that they hold, and so that they do not."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_up_data import EXPERIMENTS, JITTER, NOISE, cost_rows, errors, put, run_rows, verdicts

from reproduction.experiments import looks
from reproduction.experiments.looks import Look
from reproduction.experiments.published import published


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


def test_published_numbers_are_those_of_the_paper() -> None:
    assert published("table-poisson")["sfd"]["l2_relative"] == [1.11, 0.39]
    assert published("table-heat")["fd"]["max_error"] == [0.564, 0.018]
    assert published("appendix-b")["attention"] == {"batched_ad": 7.4, "batched_fd": 2.1}
    assert published("coupled-training") == {}
