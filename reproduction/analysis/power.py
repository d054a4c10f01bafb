"""Number of seeds that a verdict needs, computed from the spread of the first few seeds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dudx.errors import percent
from dudx.lab.run.engine_table import engine_label
from reproduction.analysis.published import published
from reproduction.analysis.statistics import (
    FIRST_SEEDS,
    LEVEL,
    POWER,
    SAME,
    Seeds,
    logarithms,
    seeds_to_exclude,
    seeds_to_see,
)
from reproduction.analysis.tables import Table, times

#: Number of tested claims in the largest part of the report, by which Holm's method corrects the first.
_CLAIMS = 17


def power_table(errors: Mapping[str, Seeds], problem: str, asked: int) -> Table:
    """Return, for each engine that is compared with AD, the spread of the ratio and the seeds a verdict needs."""
    theirs, lines = published(f"table-{problem}"), []
    for engine in (engine for engine in ("fd", "efd", "sfd") if engine in errors and engine in theirs):
        found = logarithms(errors[engine], errors.get("ad", {}))[:FIRST_SEEDS]  # in the order of the seeds
        claimed = theirs[engine]["l2_relative"][0] / theirs["ad"]["l2_relative"][0]
        detected = f"a ratio of {claimed:.3g}" if engine == "sfd" else f"that a factor of {SAME:g} is excluded"
        line = [f"{engine_label(engine)} / AD", detected]
        if len(found) < FIRST_SEEDS or not np.ptp(found):
            needed = ["-", "-", "-"]
        else:
            spread = float(np.std(found, ddof=1))
            needed = [times(float(np.exp(spread)))]
            if engine == "sfd":
                counts = [seeds_to_see(claimed, spread, level) for level in (LEVEL, LEVEL / _CLAIMS)]
            else:  # judged by the interval, which is not corrected
                counts = [seeds_to_exclude(SAME, spread)] * 2
            needed += ["over 1000" if count is None else str(count) for count in counts]
        available = len(errors.get(engine, {}).keys() & errors.get("ad", {}).keys())
        lines.append([*line, *needed, str(asked), str(available)])
    columns = ["compared", "to detect", "spread", f"seeds at {percent(LEVEL)}", "corrected", "planned", "available"]
    note = (
        f"Spread: one standard deviation of the ratio over the first {FIRST_SEEDS} seeds, as a factor. From it: the "
        f"seeds that detect the difference in {100 * POWER:g} of 100 repetitions, alone and among {_CLAIMS} claims."
    )
    return Table("Seeds that a verdict needs, computed beforehand.", columns, lines, [note], name="power", words=2)
