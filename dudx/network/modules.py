"""Find the modules of a network, also if it is wrapped in a function, an object or a container."""

from __future__ import annotations

import functools
import inspect
import itertools
import types
from typing import Any

import torch
from torch import nn

# Maximal nesting of functions and objects that are searched for modules, and maximal length of a container.
_DEPTH, _MOST = 3, 1000


def owner_of(model: object) -> object:
    """Return the object that a bound method belongs to, or the model itself."""
    return getattr(model, "__self__", model)


def type_name(model: object) -> str:
    """Return the class name of a module or the name of a function."""
    return type(model).__name__ if isinstance(model, nn.Module) else getattr(model, "__name__", type(model).__name__)


def modules_of(model: object) -> list[nn.Module]:
    """Return all modules of a network, also if it is wrapped in a function, `lambda x: net(x)[0]`, or an object."""
    owner = owner_of(model)
    if isinstance(owner, nn.Module):
        return list(owner.modules())
    found: dict[int, nn.Module] = {}
    _collect(owner, found, set(), _DEPTH)
    return list(found.values())


def scripted(model: object) -> bool:
    """Return True if a part of the model is TorchScript, which must not run inside torch.func.vmap.

    A script specialises in its first pass. Inside vmap it would treat its parameters as constants from then on, and
    the network would no longer train; later passes inside vmap fail.
    """
    kind = torch.jit.RecursiveScriptModule  # type: ignore[reportPrivateImportUsage]  (traced modules are no such)
    return isinstance(owner_of(model), torch.jit.ScriptFunction) or any(
        isinstance(module, kind) for module in modules_of(model)
    )


def _collect(value: object, found: dict[int, nn.Module], seen: set[int], depth: int) -> None:
    """Collect modules from a function's variables, an object's attributes and containers, a few levels deep."""
    value = value.__self__ if isinstance(value, types.MethodType) else value
    if isinstance(value, nn.Module):
        found.update((id(module), module) for module in value.modules())
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, list | tuple | set | frozenset | dict):
        # A longer one holds data rather than networks, and this runs at every call.
        items = value.values() if isinstance(value, dict) else value
        for item in items if len(value) <= _MOST else ():
            _collect(item, found, seen, depth)
    elif depth:
        for item in _inside(value):
            _collect(item, found, seen, depth - 1)


def _inside(value: Any) -> list[object]:
    """Return the objects that a function, or an object of a user's class, refers to."""
    if inspect.isfunction(value):
        used = [value.__globals__[name] for name in names_used(value.__code__) if name in value.__globals__]
        return [*closure_of(value), *used, value.__defaults__, value.__kwdefaults__]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, type | types.ModuleType) or type(value).__module__.partition(".")[0] in ("builtins", "torch"):
        return []
    return list(getattr(value, "__dict__", {}).values())


def closure_of(function: types.FunctionType) -> list[Any]:
    """Return the contents of the variables of outer functions that a function uses."""
    empty = types.CellType()
    return [cell.cell_contents for cell in function.__closure__ or () if cell != empty]


@functools.lru_cache(maxsize=1024)
def names_used(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of globals that a function may use, including nested functions and comprehensions."""
    inner = (names_used(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return tuple(dict.fromkeys(itertools.chain(code.co_names, *inner)))
