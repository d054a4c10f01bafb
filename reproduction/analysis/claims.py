"""Claims of the paper and verdicts on them, which are computed from the results and never written by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from dudx.errors import percent
from reproduction.analysis.statistics import FIRST_SEEDS, LEVEL, SAME, TEST, Comparison, holm

Verdict = Literal["held", "held in part", "did not hold", "undecided"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

TOO_FEW = "fewer than two seeds finished with both"
#: Share of a published factor from which it counts as reproduced, as machines differ.
SHARE = 0.75
#: Share of a published difference, in logarithms, from which it counts as reproduced.
SIZE = 0.5


@dataclass(frozen=True)
class Ratio:
    """Measured ratio behind a claim, with its interval and the published ratio."""

    of: str
    value: float
    low: float
    high: float
    published: float | None = None


@dataclass(frozen=True)
class Claim:
    """Claim with its verdict and the numbers behind it.

    Attributes:
        text: the claim in words.
        published: the published numbers.
        verdict: on it.
        evidence: the numbers behind the verdict.
        p: p-value of the test behind the verdict, if there is one.
        if_not_significant: the verdict if the test is not significant after correction for all claims.
        ratio: the measured ratio.
        missing: names of planned runs that have not been made.
    """

    text: str
    published: str
    verdict: Verdict
    evidence: str
    p: float | None = None
    if_not_significant: Verdict | None = None
    ratio: Ratio | None = None
    missing: Sequence[str] = ()


class Judgement(NamedTuple):
    """Verdict with its evidence; see `Claim` for the fields."""

    verdict: Verdict
    evidence: str
    p: float | None = None
    if_not_significant: Verdict | None = None

    def collapsed(self, first: int, second: int, pairs: int) -> Judgement:
        """Weaken the verdict if runs of the two methods finished without having learned anything."""
        if not first + second:
            return self
        words = f"{self.evidence}; runs that collapsed: {first} of the first, {second} of the second"
        if 2 * min(first, second) > pairs:
            # Two networks that learned nothing are equally wrong whatever their derivatives.
            return Judgement("undecided", f"{words}: most of both, which says nothing of their derivatives")
        verdict: Verdict = "held in part" if self.verdict == "held" else self.verdict
        if_not_significant: Verdict | None = (
            "held in part" if self.if_not_significant == "held" else self.if_not_significant
        )
        return self._replace(evidence=words, verdict=verdict, if_not_significant=if_not_significant)

    def claim(
        self,
        text: str,
        published: str,
        compared: str,
        found: Comparison | None = None,
        theirs: float | None = None,
        missing: Sequence[str] = (),
    ) -> Claim:
        """Return the claim with this verdict.

        Args:
            text: the claim in words.
            published: the published numbers.
            compared: words for the quantities that are compared.
            found: their comparison.
            theirs: the published ratio.
            missing: names of planned runs that have not been made.
        """
        evidence = f"{compared}: {self.evidence}"
        ratio = None if found is None else Ratio(compared, found.ratio, found.low, found.high, theirs)
        return Claim(text, published, self.verdict, evidence, self.p, self.if_not_significant, ratio, missing)


def corrected(claims: Sequence[Claim]) -> list[Claim]:
    """Correct verdicts for the number of claims, by Holm's method."""
    tested = [claim for claim in claims if claim.p is not None]
    kept = dict(zip(map(id, tested), holm([claim.p for claim in tested if claim.p is not None]), strict=True))
    words = f"not significant among the {len(tested)} tests of this part"
    return [
        replace(claim, verdict=claim.if_not_significant, evidence=f"{claim.evidence}; {words}")
        if claim.if_not_significant and not kept.get(id(claim), True)
        else claim
        for claim in claims
    ]


@dataclass(frozen=True)
class Lost:
    """Number of runs of each of two methods that did not finish; they count as worse than any that did."""

    first: int = 0
    second: int = 0

    @property
    def decisive(self) -> bool:
        """Whether one method lost so many more runs that this alone decides."""
        return abs(self.first - self.second) >= FIRST_SEEDS

    def weighed(self, found: Judgement, if_first: Verdict, if_second: Verdict) -> Judgement:
        """Weaken the judgement on finished runs if lost runs contradict it.

        Args:
            found: the judgement on the finished runs.
            if_first: verdict if the first method were worse.
            if_second: verdict if the second method were worse.
        """
        if not self.first + self.second:
            return found
        words = f"{found.evidence}; runs that did not finish: {self.first} of the first, {self.second} of the second"
        found = found._replace(evidence=words)
        meant = if_first if self.first > self.second else if_second
        if self.first == self.second or found.verdict in (meant, "undecided"):
            return found
        return Judgement("held in part", words)


NONE_LOST = Lost()


def same(found: Comparison | None, lost: Lost = NONE_LOST, complete: bool = True) -> Judgement:
    """Judge whether two methods are equally accurate: within a factor of 2, and no consistent winner.

    Args:
        found: comparison of the first with the second.
        lost: numbers of runs that did not finish.
        complete: whether all planned runs have been made.
    """
    return lost.weighed(_same(found, lost, complete), "did not hold", "did not hold")


def _same(found: Comparison | None, lost: Lost, complete: bool) -> Judgement:
    if found is None:
        return Judgement("did not hold" if lost.decisive else "undecided", TOO_FEW)
    if early := _too_early(found, complete):
        return early
    alike = found.within(SAME)
    # No significant difference means nothing if a large one would not be significant either.
    equal: Verdict = "held" if alike else "undecided"
    evidence = f"{found}, {TEST}; a factor of {SAME:g} is {'' if alike else 'not '}excluded"
    if not found.significant:
        return Judgement(equal, evidence, found.p)
    return Judgement("held in part" if alike else "did not hold", evidence, found.p, equal)


def _too_early(found: Comparison, complete: bool) -> Judgement | None:
    """Return "undecided" while runs are missing and there are hardly any."""
    early = not complete and found.pairs < FIRST_SEEDS
    return Judgement("undecided", f"{found}; fewer than {FIRST_SEEDS} seeds as yet") if early else None


def smaller(
    found: Comparison | None,
    test: str = TEST,
    lost: Lost = NONE_LOST,
    claimed: float | None = None,
    complete: bool = True,
) -> Judgement:
    """Judge whether the error of the first of two is significantly smaller.

    Args:
        found: comparison of the first with the second.
        test: name of the test.
        lost: numbers of runs that did not finish.
        claimed: published ratio, if there is one.
        complete: whether all planned runs have been made.
    """
    return lost.weighed(_differs(found, True, test, lost, claimed, complete), "did not hold", "held")


def larger(
    found: Comparison | None,
    test: str = TEST,
    lost: Lost = NONE_LOST,
    claimed: float | None = None,
    complete: bool = True,
) -> Judgement:
    """Judge whether the error of the first of two is significantly larger; arguments as for `smaller`."""
    return lost.weighed(_differs(found, False, test, lost, claimed, complete), "held", "did not hold")


def _differs(
    found: Comparison | None, below: bool, test: str, lost: Lost, claimed: float | None, complete: bool
) -> Judgement:
    """Judge whether a ratio is below 1, or above."""
    if found is None:
        if not lost.decisive:
            return Judgement("undecided", TOO_FEW)
        return Judgement("held" if (lost.first < lost.second) == below else "did not hold", TOO_FEW)
    if early := _too_early(found, complete):
        return early
    evidence = f"{found}, {test}"
    if found.significant and (found.ratio < 1) == below:
        small = claimed is not None and abs(math.log(found.ratio)) < SIZE * abs(math.log(claimed))
        return Judgement("held in part" if small else "held", evidence, found.p, "held in part")
    if found.significant:
        return Judgement("did not hold", evidence, found.p)  # this excludes any claimed ratio too
    # No significant difference means nothing if one as large as claimed would not be significant either.
    excluded = found.excludes(claimed or (1 / SAME if below else SAME))
    size = f"a factor of {SAME:g}" if claimed is None else f"the published {claimed:.2g}×"
    words = f"no difference at the {percent(LEVEL)} level; {size} is {'' if excluded else 'not '}excluded"
    return Judgement("did not hold" if excluded else "undecided", f"{evidence}: {words}", found.p)


def flat(changes: Sequence[Comparison | None], factor: float, complete: bool = True, lost: int = 0) -> Verdict:
    """Judge whether the errors of several methods, each with its change, change by less than a factor."""
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
    """Judge whether a measured factor reaches the claimed one; in part, if it reaches its square root."""
    if ratio is None:
        return "undecided"
    if ratio >= SHARE * claimed:
        return "held"
    return "held in part" if ratio > math.sqrt(claimed) else "did not hold"
