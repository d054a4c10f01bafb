"""Read data files in COMSOL's text format."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from dudx.errors import InputError


def read_comsol(path: str | Path, dimensions: int, outputs: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return points (N, d) and values (N, outputs) of a data file.

    Comment lines start with %. Each row holds the space coordinates and then the values. If they depend on time there
    are columns for each time, and the last comment line names the time of each column as `@ t=0.1`.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError) as error:
        raise InputError(
            f"The data file {str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from error
    comments = [line for line in lines if line.startswith("%")]
    rows = [(number, line.split()) for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("%")]
    if not rows:
        raise InputError(f"The data file {str(path)!r} holds no rows of numbers.")
    words = re.findall(r"@\s*t=([-+0-9.eE]+)", comments[-1] if comments else "")
    try:
        times = [float(word) for word in words]
    except ValueError as error:
        raise InputError(f"The data file {str(path)!r} has a time that is not a number: {error}.") from error
    space = dimensions - 1 if times else dimensions
    if len(times) % outputs:
        raise InputError(f"The data file {str(path)!r} names {len(times)} columns with times for {outputs} functions.")
    times = times[::outputs]
    columns = space + (len(times) or 1) * outputs
    for number, row in rows:
        if len(row) != columns:
            raise InputError(
                f"Line {number} of {str(path)!r} has {len(row)} columns where {columns} are expected: "
                f"{space} coordinates and {columns - space} value(s)."
            )
    try:
        table = np.array([[float(entry) for entry in row] for _, row in rows])
    except ValueError as error:
        raise InputError(f"The data file {str(path)!r} holds an entry that is not a number: {error}.") from error
    # COMSOL writes NaN at mesh nodes without a value, for instance inside a hole.
    if not times:
        points, values = table[:, :space], table[:, space:]
    else:
        count = len(table)
        points = np.column_stack([np.tile(table[:, :space], (len(times), 1)), np.repeat(times, count)])
        values = table[:, space:].reshape(count, len(times), outputs).transpose(1, 0, 2).reshape(-1, outputs)
    known = np.isfinite(values).all(axis=1)
    if not known.any():
        raise InputError(f"The data file {str(path)!r} holds no finite value.")
    return points[known], values[known]
