"""Hundreds of bad command lines: none may be accepted, end in a traceback or leave anything behind.

python tests/torture/commands.py [how many beside the table [seed]]
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import bad_commands


def main() -> None:
    """Print the counts; the exit code is 1 if a line was not refused as it should be."""
    count, seed = ([int(word) for word in sys.argv[1:]] + [300, 1][len(sys.argv) - 1 :])[:2]
    lines = dict(bad_commands.TABLE.values())
    lines |= dict.fromkeys(bad_commands.generated(count, seed), "")
    ends: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="dudx-torture-") as place:
        bad_commands.prepare(Path(place))
        for line, sentence in lines.items():
            fault = bad_commands.answer(line, Path(place)).fault(sentence)
            if fault:
                print(f"dudx {line}: {fault}", file=sys.stderr)
            ends[fault.partition(" ")[0] if fault else "refused"] += 1
    faults = sum(ends.values()) - ends["refused"]
    print(f"bad commands: {len(lines)} tried, {ends['refused']} refused with one sentence, {faults} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
