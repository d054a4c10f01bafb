"""How many seeds it takes to tell: computed from the spread of the first few, before the others are run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dudx.lab.run.engine_table import engine_label
from reproduction.experiments.published import published
from reproduction.experiments.statistics import (
    FIRST_SEEDS,
    LEVEL,
    POWER,
    SAME,
    Seeds,
    logarithms,
    seeds_to_exclude,
    seeds_to_see,
)
from reproduction.experiments.tables import Table, times

#: So many claims of the largest part are tested; Holm's method asks the most of the first of them.
_CLAIMS = 17


def power_table(errors: Mapping[str, Seeds], problem: str, asked: int) -> Table:
    """For each engine that is compared with AD: the spread of its ratio, and how many seeds a verdict takes."""
    theirs, lines = published(f"table-{problem}"), []
    for engine in (engine for engine in ("fd", "efd", "sfd") if engine in errors and engine in theirs):
        first, ad = ({s: e for s, e in errors.get(each, {}).items() if s < FIRST_SEEDS} for each in (engine, "ad"))
        found = logarithms(first, ad)
        claimed = theirs[engine]["l2_relative"][0] / theirs["ad"]["l2_relative"][0]
        told = f"a ratio of {claimed:.3g}" if engine == "sfd" else f"that a factor of {SAME:g} is excluded"
        line = [f"{engine_label(engine)} / AD", told]
        if len(found) < FIRST_SEEDS or not np.ptp(found):
            needed = ["-", "-", "-"]
        else:
            spread = float(np.std(found, ddof=1))
            needed = [times(float(np.exp(spread)))]
            if engine == "sfd":
                counts = [seeds_to_see(claimed, spread, level) for level in (LEVEL, LEVEL / _CLAIMS)]
            else:  # by the interval, which is not corrected
                counts = [seeds_to_exclude(SAME, spread)] * 2
            needed += ["over 1000" if count is None else str(count) for count in counts]
        there = len(errors.get(engine, {}).keys() & errors.get("ad", {}).keys())
        lines.append([*line, *needed, str(asked), str(there)])
    columns = ["compared", "to see", "spread", f"seeds at {100 * LEVEL:g} %", "corrected", "asked for", "there"]
    note = (
        f"From the spread of the ratio over the first {FIRST_SEEDS} seeds, one standard deviation as a factor: how "
        f"many seeds see the difference in {100 * POWER:g} of 100 repetitions, by itself and among {_CLAIMS} claims."
    )
    return Table("Seeds that a verdict takes, computed beforehand.", columns, lines, [note], name="power", words=2)
