"""What the paper claims, and what our data say of it: verdicts are computed, never written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dudx.lab.experiments.statistics import LEVEL, TEST, Comparison

Verdict = Literal["held", "held in part", "did not hold", "undecided"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

#: The share of a published factor from which it counts as found again: machines differ.
SHARE = 0.75


@dataclass(frozen=True)
class Claim:
    """A claim, in words and as published, with the verdict of our data and the numbers behind it."""

    text: str
    published: str
    verdict: Verdict
    evidence: str


def same(found: Comparison | None, difference: float, deviation: float) -> tuple[Verdict, str]:
    """Whether two methods are as good as each other: their means closer than the seeds are, and no consistent winner.

    The interval of the ratio must exclude a factor of 2, or a few noisy seeds would prove anything equal.

    Args:
        found: the first against the second.
        difference: between the means.
        deviation: the larger standard deviation of the two over the seeds.
    """
    if found is None:
        return "undecided", "fewer than two seeds finished with both"
    evidence = f"{found}, {TEST}; the means differ by {_deviations(difference, deviation)}"
    if abs(difference) <= deviation and found.narrow:
        return ("held in part" if found.significant else "held"), evidence
    if abs(difference) <= deviation:
        return "undecided", f"{evidence}; a factor of 2 is not excluded"
    return ("did not hold" if found.significant else "undecided"), evidence


def _deviations(difference: float, deviation: float) -> str:
    if deviation == 0:
        return "nothing" if difference == 0 else "more than the seeds, which do not differ"
    return f"{abs(difference) / deviation:.2f} standard deviations of the seeds"


def smaller(found: Comparison | None, test: str = TEST) -> tuple[Verdict, str]:
    """Whether the first of two is smaller beyond the noise of the seeds."""
    if found is None:
        return "undecided", "fewer than two seeds finished with both"
    evidence = f"{found}, {test}"
    if not found.significant:
        return "undecided", f"{evidence}: no difference at the {100 * LEVEL:g} % level"
    return ("held" if found.ratio < 1 else "did not hold"), evidence


def larger(found: Comparison | None, test: str = TEST) -> tuple[Verdict, str]:
    """Whether the first of two is larger beyond the noise of the seeds."""
    verdict, evidence = smaller(found, test)
    turned: dict[Verdict, Verdict] = {"held": "did not hold", "did not hold": "held"}
    return turned.get(verdict, verdict), evidence


def at_least(ratio: float | None, claimed: float) -> Verdict:
    """Whether a measured factor is about as large as the claimed one."""
    if ratio is None:
        return "undecided"
    if ratio >= SHARE * claimed:
        return "held"
    return "held in part" if ratio > 1 else "did not hold"
