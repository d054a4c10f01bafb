"""Reference solutions by name: exact where a formula exists, else computed by finite elements and shipped as arrays.

A new one is a module with the four names of `Source`, and a line in `SOURCES`.
"""

from __future__ import annotations

import importlib
import zlib
from pathlib import Path
from typing import cast

from dudx.errors import InputError
from dudx.lab.file_formats import read_arrays, write_arrays
from dudx.lab.named_objects import look_up
from dudx.lab.problems.references.reference_source import Reference, Refinement, Source

__all__ = ["SOURCES", "Reference", "Refinement", "Source", "rebuild", "reference", "refinement_table"]

DATA = Path(__file__).parent / "data"
# Module names rather than modules: finite elements are imported when they are asked for.
SOURCES = {name: f"{__name__}.{name}_reference" for name in ("poisson", "burgers", "heat")}


def reference(name: str, folder: Path = DATA) -> Reference:
    """The solution of a problem: a callable from points (N, d), columns in the order x, y, t, to values (N, 1)."""
    source = _source(name)
    if not source.STORED:
        return source.load({})
    path = folder / f"{name}.npz"
    try:
        return source.load(read_arrays(path))
    except (InputError, KeyError, IndexError, zlib.error) as error:
        fault = "damaged" if path.exists() else "missing"
        raise InputError(
            f"The reference data {str(path)!r} is {fault}; run 'dudx reference {name} --rebuild' to compute it again."
        ) from error


def rebuild(name: str, folder: Path = DATA) -> Path | None:
    """Compute the arrays of a reference and write them, all or nothing; None where a formula needs no arrays."""
    source = _source(name)
    if not source.STORED:
        return None
    path = folder / f"{name}.npz"
    write_arrays(path, **source.build())
    return path


def refinement_table(name: str) -> list[Refinement]:
    """Convergence of a reference: one row per resolution, from coarse to the one that is shipped."""
    return _source(name).refinements()


def _source(name: str) -> Source:
    found = look_up(name, SOURCES, "reference")
    return cast(Source, importlib.import_module(found) if isinstance(found, str) else found)
