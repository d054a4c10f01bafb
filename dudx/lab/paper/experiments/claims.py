"""What the paper claims, and what our data say of it: verdicts are computed, never written."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from dudx.lab.paper.experiments.statistics import LEVEL, TEST, Comparison

Verdict = Literal["held", "held in part", "did not hold", "undecided"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

TOO_FEW = "fewer than two seeds finished with both"
#: The share of a published factor from which it counts as found again: machines differ.
SHARE = 0.75


@dataclass(frozen=True)
class Claim:
    """A claim, in words and as published, with the verdict of our data and the numbers behind it."""

    text: str
    published: str
    verdict: Verdict
    evidence: str


@dataclass(frozen=True)
class Lost:
    """How many runs of each of two methods did not finish; such a run is worse than any that did."""

    first: int = 0
    second: int = 0

    def weighed(self, verdict: Verdict, evidence: str, if_first: Verdict, if_second: Verdict) -> tuple[Verdict, str]:
        """The verdict of the finished runs, unless the others speak against it.

        Args:
            verdict: what the finished runs say, seed by seed.
            evidence: their numbers.
            if_first: what it would mean if the first method were worse.
            if_second: the same of the second.
        """
        if not self.first + self.second:
            return verdict, evidence
        evidence = f"{evidence}; runs that did not finish: {self.first} of the first, {self.second} of the second"
        if self.first == self.second:
            return verdict, evidence
        meant = if_first if self.first > self.second else if_second
        return (verdict if verdict == meant else "undecided"), evidence


NONE_LOST = Lost()


def same(found: Comparison | None, difference: float, deviation: float, lost: Lost = NONE_LOST) -> tuple[Verdict, str]:
    """Whether two methods are as good as each other: their means closer than the seeds are, and no consistent winner.

    The interval of the ratio must exclude a factor of 2, or a few noisy seeds would prove anything equal.

    Args:
        found: the first against the second.
        difference: between the means.
        deviation: the larger standard deviation of the two over the seeds.
        lost: the runs that did not finish.
    """
    verdict, evidence = _of_finished(found, difference, deviation)
    return lost.weighed(verdict, evidence, "did not hold", "did not hold")


def _of_finished(found: Comparison | None, difference: float, deviation: float) -> tuple[Verdict, str]:
    if found is None:
        return "undecided", TOO_FEW
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


def smaller(found: Comparison | None, test: str = TEST, lost: Lost = NONE_LOST) -> tuple[Verdict, str]:
    """Whether the error of the first of two is smaller beyond the noise of the seeds."""
    verdict: Verdict = "undecided"
    if found is None:
        evidence = TOO_FEW
        if lost.first != lost.second:  # all that there is to go by
            verdict = "did not hold" if lost.first > lost.second else "held"
    elif found.significant:
        evidence = f"{found}, {test}"
        verdict = "held" if found.ratio < 1 else "did not hold"
    else:
        evidence = f"{found}, {test}: no difference at the {100 * LEVEL:g} % level"
    return lost.weighed(verdict, evidence, "did not hold", "held")


def larger(found: Comparison | None, test: str = TEST, lost: Lost = NONE_LOST) -> tuple[Verdict, str]:
    """Whether the error of the first of two is larger beyond the noise of the seeds."""
    verdict, evidence = smaller(found, test, lost)
    turned: dict[Verdict, Verdict] = {"held": "did not hold", "did not hold": "held"}
    return turned.get(verdict, verdict), evidence


def at_least(ratio: float | None, claimed: float) -> Verdict:
    """Whether a measured factor is about as large as the claimed one; in part, if it is so in orders of magnitude."""
    if ratio is None:
        return "undecided"
    if ratio >= SHARE * claimed:
        return "held"
    return "held in part" if ratio > math.sqrt(claimed) else "did not hold"
