"""Hundreds of damaged files: none may be used as if it were sound, or end in a traceback.

python tests/torture/corruption.py [how many [seed]]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import torch
from damage import Workshop, report


def main() -> None:
    """Print the counts; the exit code is 1 if damage went unnoticed or was not said in a sentence."""
    count, seed = ([int(word) for word in sys.argv[1:]] + [200, 1][len(sys.argv) - 1 :])[:2]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="dudx-torture-") as place:
        workshop = Workshop(Path(place))
        cases = workshop.random_cases(count, seed) + workshop.odd_cases()
        ends = report(cases, workshop)
    print(
        f"damaged files: {len(cases)} tried, {ends['refused']} refused with one sentence, {ends['harmless']} without "
        f"effect, {ends['accepted']} accepted and wrong, {ends['traceback']} tracebacks"
    )
    sys.exit(1 if ends["accepted"] + ends["traceback"] else 0)


if __name__ == "__main__":
    main()
