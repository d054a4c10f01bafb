"""Claims of each experiment, on data made up so that they hold, and so that they do not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from made_up_data import EXPERIMENTS, JITTER, NOISE, cost_rows, errors, results, run_rows, verdicts

from reproduction.analysis import error_curves
from reproduction.analysis.error_curves import CurvePoint
from reproduction.analysis.published import published


def test_an_error_at_a_mark_is_the_mean_of_the_last_evaluations_before_it() -> None:
    way = [CurvePoint(float(n), 10 * n, 1.0 / n) for n in range(1, 101)]
    last = [1.0 / n for n in range(46, 51)]
    assert error_curves.error_at(way, "cpu_seconds", 50.0) == pytest.approx(math.prod(last) ** (1 / 5))
    assert error_curves.error_at(way, "epoch", 500) == error_curves.error_at(way, "cpu_seconds", 50.0)
    assert error_curves.error_at(way, "cpu_seconds", 5.0) == pytest.approx(0.2)
    assert error_curves.error_at(way, "cpu_seconds", 120.0) is None
    assert error_curves.error_at([], "epoch", 1) is None
    assert error_curves.reached(way, "cpu_seconds", 0.1) == 10.0
    assert error_curves.reached(way, "epoch", 1e-9) is None
    assert error_curves.common_end([way, way[:59]], "epoch") == 580
    assert error_curves.common_end([[CurvePoint(59.5, 7, 1.0)]], "cpu_seconds") == 60
    assert error_curves.common_end([[CurvePoint(None, 7, 1.0)]], "cpu_seconds") == 0


@pytest.mark.parametrize(
    ("sfd", "expected"),
    [(0.005, "held"), (0.02, "did not hold"), (0.01, "did not hold")],
    ids=["better", "worse", "same"],
)
def test_accuracy_on_poisson(sfd: float, expected: str) -> None:
    levels = {"ad": errors(0.01), "fd": errors(0.01, JITTER), "sfd": errors(sfd, JITTER)}
    found = verdicts(results(run_rows("poisson", levels)), "table-poisson")
    assert found == {
        "Poisson 2D: FD (eq. eFD) is as accurate as AD": "held",
        "Poisson 2D: sFD is more accurate than AD": expected,
    }


def test_accuracy_on_burgers() -> None:
    levels = {"ad": errors(0.01), "fd": errors(0.05, JITTER), "efd": errors(0.01, JITTER), "sfd": errors(0.04, JITTER)}
    found = verdicts(results(run_rows("burgers", levels)), "table-burgers")
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


def test_flatness_in_the_interval() -> None:
    flat = interval_rows("burgers", "fd", lambda interval: 0.01 if interval < 500 else 0.02)
    steep = interval_rows("burgers", "sfd", lambda interval: 0.01 * interval**0.2)
    text = "Burgers 1D: the error is flat in the recalibration interval up to 100 epochs"
    twice = "Burgers 1D: sFD fails when steps are calibrated twice in a training"
    assert verdicts(results(flat), "fig-5") == {text: "held"}
    assert verdicts(results(steep), "fig-5") == {text: "did not hold", twice: "held"}
    assert verdicts(results(flat + steep), "fig-5")[text] == "held in part"
    stable = interval_rows("burgers", "sfd", lambda interval: 0.01)
    assert verdicts(results(stable), "fig-5") == {text: "held", twice: "did not hold"}
    blown = [{**row, "status": "diverged"} if row["recalibrate"] == 500 else row for row in stable]
    assert verdicts(results(blown), "fig-5") == {text: "held", twice: "held"}
    torn = [{**row, "status": "diverged"} if row["recalibrate"] == 10 and row["seed"] else row for row in stable]
    assert verdicts(results(torn), "fig-5")[text] == "undecided"


def test_cost() -> None:
    faster, less = (
        "plain MLP: FD is faster than batched AD at every batch",
        "plain MLP: a step with FD takes half the memory of one with batched AD",
    )
    good = verdicts(results(measured=cost_rows(2.5, 2.1)), "fig-4")
    assert (good[faster], good[less]) == ("held", "held")
    assert good["MLP with BN: per-sample AD takes one to two orders of magnitude more memory than FD"] == "held"
    assert (
        good["MLP with BN: per-sample AD is two to three orders of magnitude slower than FD"] == "held in part"
    )  # 1000 of 1600
    bad = verdicts(results(measured=cost_rows(0.7, 0.9)), "fig-4")
    assert (bad[faster], bad[less]) == ("did not hold", "did not hold")
    mixed = cost_rows(2.5, 1.45)
    mixed[0]["seconds"] = 1e-6  # at one batch AD is faster
    found = verdicts(results(measured=mixed), "fig-4")
    assert (found[faster], found[less]) == ("held in part", "held in part")


def laplacian_error_rows(batched_ad: float, batched_fd: float) -> list[dict[str, Any]]:
    rows = []
    for network in ("mlp", "batchnorm", "attention"):
        for seed, (noise, jitter) in enumerate(zip(NOISE, JITTER, strict=True)):
            found = {"scale": 2.0, "batched_ad": batched_ad * noise, "batched_fd": batched_fd * noise * jitter}
            found |= {"isolated_ad": 1e-7, "isolated_fd": 1e-3, "isolated_taylor": 1e-7 * jitter}
            rows.append({"network": network, "seed": seed, "status": "ok", "loss": 0.1})
            rows[-1] |= {"float32": found, "float64": found}
    return rows


def test_coupled_networks() -> None:
    wrong = "MLP with attention: the derivative of the sum over samples is wrong"
    closer = "MLP with attention: differences on the whole batch come closer"
    found = verdicts(results(measured=laplacian_error_rows(8.0, 0.7)), "appendix-b")
    assert (found[wrong], found[closer]) == ("held", "held")
    assert found["MLP with BN: isolation comes closer still"] == "held"
    found = verdicts(results(measured=laplacian_error_rows(1e-4, 2e-4)), "appendix-b")
    assert (found[wrong], found[closer]) == ("did not hold", "did not hold")


def test_training_coupled_networks() -> None:
    rows = run_rows("poisson", {"ad": errors(0.02), "taylor": errors(0.02, JITTER)}, network="batchnorm")
    rows += run_rows("poisson", {"ad": errors(0.2, JITTER)}, network="batchnorm", coupled="ignore")
    found = verdicts(results(rows), "coupled-training")
    assert found["MLP with BN: isolated Taylor trains as well as isolated AD"] == "held"
    assert found["MLP with BN: trained by the derivative of the sum, the solution is worse"] == "held"
    assert found["MLP with attention: trained by the derivative of the sum, the solution is worse"] == "undecided"
    diverged = [{**row, "status": "diverged"} if row["coupled"] == "ignore" else row for row in rows]
    found = verdicts(results(diverged), "coupled-training")
    assert found["MLP with BN: trained by the derivative of the sum, the solution is worse"] == "held"


@pytest.mark.parametrize(("constant", "expected"), [(2.5, "held"), (40.0, "did not hold")])
def test_the_constant_of_the_best_step(constant: float, expected: str) -> None:
    rows = [
        {"format": name, "seed": seed, "status": "ok", "epsilon": epsilon}
        | {str(order): {"step": constant * epsilon ** (1 / (order + 2))} for order in (1, 2)}
        for name, epsilon in (("fp64", 2.2e-16), ("fp32", 1.2e-7), ("bf16", 7.8e-3))
        for seed in range(3)
    ]
    (claim,) = EXPERIMENTS["fig-3"].claims(results(measured=rows))
    assert claim.verdict == expected
    assert f"FP32 {constant:.1f}" in claim.evidence


def test_published_numbers_are_those_of_the_paper() -> None:
    assert published("table-poisson")["sfd"]["l2_relative"] == [1.11, 0.39]
    assert published("table-heat")["fd"]["max_error"] == [0.564, 0.018]
    assert published("appendix-b")["attention"] == {"batched_ad": 7.4, "batched_fd": 2.1}
    assert published("coupled-training") == {}
