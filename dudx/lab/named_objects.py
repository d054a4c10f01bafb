"""Find objects by name: in a folder of modules, in a table, or as `package.module:name` of the user's own code."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dudx.engines.registry import modules_in
from dudx.errors import DudxError, InputError, first_line


def held_in(package: str, attribute: str) -> dict[str, Any]:
    """Return an attribute of each module of a package, by the module's name with dashes: `fig_1.py` is fig-1."""
    return {
        module.__name__.rpartition(".")[2].replace("_", "-"): getattr(module, attribute)
        for module in modules_in(package)
        if hasattr(module, attribute)
    }


def look_up(name: str, table: Mapping[str, Any], kind: str) -> Any:
    """Return an entry of a table, or the object that `package.module:name` imports; suggest a near name if neither."""
    if name in table:
        return table[name]
    if ":" in name:
        return imported(name, kind)
    if Path(f"{name.replace('.', '/')}.py").is_file():
        raise InputError(f"There is no {kind} named {name!r}; did you mean that of {name}.py, '{name}:{kind}'?")
    near = difflib.get_close_matches(name.lower(), table, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(table)}."
    raise InputError(f"There is no {kind} named {name!r}; {hint}")


def imported(path: str, kind: str) -> Any:
    """Import the object at `package.module:name`; modules of the current folder are found too."""
    module_name, _, attribute = path.partition(":")
    if not all(word.isidentifier() for word in (*module_name.split("."), attribute)):
        raise InputError(f"The {kind} {path!r} cannot be imported: it should read package.module:name.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise InputError(f"The {kind} {path!r} cannot be imported: {first_line(error)}.") from error
    except (Exception, SystemExit) as error:  # of the user's code
        raise InputError(f"The {kind} {path!r} cannot be imported: {said(error)}.") from error
    if not hasattr(module, attribute):
        raise InputError(f"The module {module_name!r} has nothing named {attribute!r} to use as {kind}.")
    return getattr(module, attribute)


def made(name: str, kind: str, make: Callable[[], Any]) -> Any:
    """Call a user's constructor and turn its failure into one sentence."""
    try:
        return make()
    except DudxError:
        raise
    except MemoryError as error:
        raise InputError(f"The {kind} {name!r} needs more memory than there is; try smaller numbers.") from error
    except (Exception, SystemExit) as error:
        raise InputError(f"The {kind} {name!r} cannot be made: {said(error)}.") from error


def said(error: BaseException) -> str:
    """Return the type and first line of an exception of the user's code."""
    if isinstance(error, SystemExit):
        return f"it ends the program, by sys.exit({error.code!r})"
    line = first_line(error)
    return line if line == type(error).__name__ else f"{type(error).__name__}: {line}"
