"""What the paper claims, and what our data say of it: verdicts are computed, never written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from reproduction.experiments.statistics import FIRST_SEEDS, LEVEL, SAME, TEST, Comparison, holm

Verdict = Literal["held", "held in part", "did not hold", "undecided"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

TOO_FEW = "fewer than two seeds finished with both"
#: The share of a published factor from which it counts as found again: machines differ.
SHARE = 0.75
#: The share of a published difference, in logarithms, from which it counts as found again.
SIZE = 0.5


@dataclass(frozen=True)
class Ratio:
    """What the picture of a claim shows: a ratio that was found, from where to where it may be, and the published."""

    of: str
    value: float
    low: float
    high: float
    published: float | None = None


@dataclass(frozen=True)
class Claim:
    """A claim, in words and as published, with the verdict of our data and the numbers behind it."""

    text: str
    published: str
    verdict: Verdict
    evidence: str
    #: Of the test behind the verdict, and what the verdict is where that is not significant among all the others.
    p: float | None = None
    otherwise: Verdict | None = None
    ratio: Ratio | None = None
    #: Runs that were asked for and are not there.
    missing: Sequence[str] = ()


class Finding(NamedTuple):
    """A verdict with the numbers behind it, and what it would be were its test not significant."""

    verdict: Verdict
    evidence: str
    p: float | None = None
    otherwise: Verdict | None = None

    def collapsed(self, first: int, second: int, pairs: int) -> Finding:
        """The same where so many runs of each method finished without having learned anything."""
        if not first + second:
            return self
        told = f"{self.evidence}; runs that collapsed: {first} of the first, {second} of the second"
        if 2 * min(first, second) > pairs:
            # Two networks that learned nothing are equally wrong whatever their derivatives.
            return Finding("undecided", f"{told}: most of both, which says nothing of their derivatives")
        verdict: Verdict = "held in part" if self.verdict == "held" else self.verdict
        otherwise: Verdict | None = "held in part" if self.otherwise == "held" else self.otherwise
        return self._replace(evidence=told, verdict=verdict, otherwise=otherwise)

    def claim(
        self,
        text: str,
        published: str,
        told: str,
        found: Comparison | None = None,
        theirs: float | None = None,
        missing: Sequence[str] = (),
    ) -> Claim:
        """The claim that this is a verdict on; `told` says what the numbers compare, `theirs` is their ratio."""
        evidence = f"{told}: {self.evidence}"
        ratio = None if found is None else Ratio(told, found.ratio, found.low, found.high, theirs)
        return Claim(text, published, self.verdict, evidence, self.p, self.otherwise, ratio, missing)


def corrected(claims: Sequence[Claim]) -> list[Claim]:
    """The claims with verdicts that allow for their number, by Holm's method."""
    tested = [claim for claim in claims if claim.p is not None]
    kept = dict(zip(map(id, tested), holm([claim.p for claim in tested if claim.p is not None]), strict=True))
    told = f"not significant among the {len(tested)} tests of this part"
    return [
        replace(claim, verdict=claim.otherwise, evidence=f"{claim.evidence}; {told}")
        if claim.otherwise and not kept.get(id(claim), True)
        else claim
        for claim in claims
    ]


@dataclass(frozen=True)
class Lost:
    """How many runs of each of two methods did not finish; such a run is worse than any that did."""

    first: int = 0
    second: int = 0

    @property
    def decisive(self) -> bool:
        """Whether so many more of one method are lost that this alone tells them apart."""
        return abs(self.first - self.second) >= FIRST_SEEDS

    def weighed(self, found: Finding, if_first: Verdict, if_second: Verdict) -> Finding:
        """What the finished runs say, unless the others speak against it.

        Args:
            found: what the finished runs say, seed by seed.
            if_first: what it would mean if the first method were worse.
            if_second: the same of the second.
        """
        if not self.first + self.second:
            return found
        told = f"{found.evidence}; runs that did not finish: {self.first} of the first, {self.second} of the second"
        found = found._replace(evidence=told)
        meant = if_first if self.first > self.second else if_second
        if self.first == self.second or found.verdict in (meant, "undecided"):
            return found
        return Finding("held in part", told)


NONE_LOST = Lost()


def same(found: Comparison | None, lost: Lost = NONE_LOST, complete: bool = True) -> Finding:
    """Whether two methods are as good as each other: within a factor of 2, and no consistent winner.

    Args:
        found: the first against the second.
        lost: the runs that did not finish.
        complete: whether all runs that were asked for are there.
    """
    return lost.weighed(_same(found, lost, complete), "did not hold", "did not hold")


def _same(found: Comparison | None, lost: Lost, complete: bool) -> Finding:
    if found is None:
        return Finding("did not hold" if lost.decisive else "undecided", TOO_FEW)
    if early := _too_early(found, complete):
        return early
    alike = found.within(SAME)
    # That no difference is seen says nothing where a large one would not be seen either.
    equal: Verdict = "held" if alike else "undecided"
    evidence = f"{found}, {TEST}; a factor of {SAME:g} is {'' if alike else 'not '}excluded"
    if not found.significant:
        return Finding(equal, evidence, found.p)
    return Finding("held in part" if alike else "did not hold", evidence, found.p, equal)


def _too_early(found: Comparison, complete: bool) -> Finding | None:
    """What is said while runs are missing and there are hardly any."""
    early = not complete and found.pairs < FIRST_SEEDS
    return Finding("undecided", f"{found}; fewer than {FIRST_SEEDS} seeds as yet") if early else None


def smaller(
    found: Comparison | None,
    test: str = TEST,
    lost: Lost = NONE_LOST,
    claimed: float | None = None,
    complete: bool = True,
) -> Finding:
    """Whether the error of the first of two is smaller beyond the noise of the seeds.

    Args:
        found: the first against the second.
        test: what it was found by.
        lost: the runs that did not finish.
        claimed: the ratio that is claimed, if one is.
        complete: whether all runs that were asked for are there.
    """
    return lost.weighed(_differs(found, True, test, lost, claimed, complete), "did not hold", "held")


def larger(
    found: Comparison | None,
    test: str = TEST,
    lost: Lost = NONE_LOST,
    claimed: float | None = None,
    complete: bool = True,
) -> Finding:
    """Whether the error of the first of two is larger beyond the noise of the seeds; arguments as for `smaller`."""
    return lost.weighed(_differs(found, False, test, lost, claimed, complete), "held", "did not hold")


def _differs(
    found: Comparison | None, below: bool, test: str, lost: Lost, claimed: float | None, complete: bool
) -> Finding:
    """Whether a ratio is below 1, or above."""
    if found is None:
        if not lost.decisive:
            return Finding("undecided", TOO_FEW)
        return Finding("held" if (lost.first < lost.second) == below else "did not hold", TOO_FEW)
    if early := _too_early(found, complete):
        return early
    evidence = f"{found}, {test}"
    if found.significant and (found.ratio < 1) == below:
        small = claimed is not None and abs(math.log(found.ratio)) < SIZE * abs(math.log(claimed))
        return Finding("held in part" if small else "held", evidence, found.p, "held in part")
    if found.significant:
        return Finding("did not hold", evidence, found.p)  # whatever is claimed is excluded, too
    # That no difference is seen says nothing where one as large as claimed would not be seen either.
    excluded = found.excludes(claimed or (1 / SAME if below else SAME))
    size = f"a factor of {SAME:g}" if claimed is None else f"the published {claimed:.2g}×"
    told = f"no difference at the {100 * LEVEL:g} % level; {size} is {'' if excluded else 'not '}excluded"
    return Finding("did not hold" if excluded else "undecided", f"{evidence}: {told}", found.p)


def flat(changes: Sequence[Comparison | None], factor: float, complete: bool = True, lost: int = 0) -> Verdict:
    """Whether errors change by less than a factor over a range: of several methods, each with its change."""
    verdicts = [_flat(change, factor, complete) for change in changes]
    if "undecided" in verdicts or not verdicts:
        return "undecided"
    if all(verdict == "held" for verdict in verdicts) and not lost:
        return "held"
    return "did not hold" if all(verdict == "did not hold" for verdict in verdicts) else "held in part"


def _flat(change: Comparison | None, factor: float, complete: bool) -> Verdict:
    if change is None or (not complete and change.pairs < FIRST_SEEDS):
        return "undecided"
    if change.within(factor):
        return "held"
    if change.significant:
        return "held in part" if 1 / factor <= change.ratio <= factor else "did not hold"
    return "held in part" if change.within(SAME) else "undecided"


def at_least(ratio: float | None, claimed: float) -> Verdict:
    """Whether a measured factor is about as large as the claimed one; in part, if it is so in orders of magnitude."""
    if ratio is None:
        return "undecided"
    if ratio >= SHARE * claimed:
        return "held"
    return "held in part" if ratio > math.sqrt(claimed) else "did not hold"
