"""A folder as a registry: what its files hold under a certain name, or of a certain kind, is what there is."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType


def modules_in(package: str) -> Iterator[ModuleType]:
    """The modules of a package's folder, in the order of their names; a package in it counts as one module."""
    folder = importlib.import_module(package)
    for found in sorted(pkgutil.iter_modules(folder.__path__), key=lambda found: found.name):
        yield importlib.import_module(f"{package}.{found.name}")
