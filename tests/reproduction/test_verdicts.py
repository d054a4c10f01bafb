"""Verdicts from comparisons (held, in part, not, undecided), and conditions that weaken them."""

from __future__ import annotations

from made_up_data import JITTER, errors

from reproduction.analysis import claims
from reproduction.analysis.claims import Claim, Lost
from reproduction.analysis.statistics import Comparison, compare


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
    # If one method collapses and the other does not, they differ.
    assert claims.larger(worse).collapsed(5, 0, 5).verdict == "held in part"
    assert claims.smaller(worse).collapsed(5, 0, 5).verdict == "did not hold"
    # A correction for many claims does not make up for it.
    consistent = claims.same(compare(errors(0.0102), errors(0.01)))
    assert consistent.if_not_significant == "held"
    assert consistent.collapsed(1, 0, 5).if_not_significant == "held in part"


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
