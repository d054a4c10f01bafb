"""Reference solutions by name: exact where a formula exists, else computed by finite elements and stored as arrays."""

from __future__ import annotations

import zlib
from pathlib import Path

from dudx.errors import InputError
from dudx.lab.file_formats import read_arrays
from dudx.lab.named_objects import look_up
from dudx.lab.problems.references import burgers_reference, heat_reference, poisson_reference
from dudx.lab.problems.references.reference_solution import Reference

__all__ = ["DATA", "FORMULAS", "STORED", "Reference", "reference"]

DATA = Path(__file__).parent / "data"
#: References that are formulas, and those made of stored arrays.
FORMULAS = {"burgers": burgers_reference.load}
STORED = {"poisson": poisson_reference.load, "heat": heat_reference.load}


def reference(name: str, folder: Path = DATA) -> Reference:
    """Return a reference: a callable from points (N, d), columns in the order x, y, t, to values (N, 1)."""
    load = look_up(name, {**FORMULAS, **STORED}, "reference")
    if name in FORMULAS:
        return load()
    path = folder / f"{name}.npz"
    try:
        return load(read_arrays(path))
    except (InputError, KeyError, IndexError, zlib.error) as error:
        fault = "damaged" if path.exists() else "missing"
        raise InputError(
            f"The reference data {str(path)!r} is {fault}; install dudx again, or compute it in the repository by "
            f"'python -m reproduction.references {name} --rebuild'."
        ) from error
