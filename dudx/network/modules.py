"""Find the modules of a network, also if it is wrapped in a function, an object or a container."""

from __future__ import annotations

import enum
import functools
import inspect
import itertools
import types
from typing import Any

import torch
from torch import nn

#: Common layers without attributes that change their behaviour.
_PLAIN = {nn.Linear, nn.Tanh, nn.Sequential, nn.SiLU, nn.Sigmoid, nn.ReLU, nn.Softplus, nn.ModuleList, nn.Identity}
_SWITCHES = {bool, types.FunctionType, types.BuiltinFunctionType, types.MethodType}
_VALUES = {str, float, int, bool, type(None)}
#: Attributes of every module, which torch keeps for itself; hooks and modules are noted by themselves.
_TORCH_OWN = frozenset(nn.Module().__dict__)
_OPAQUE = {torch.Tensor, nn.Parameter, torch.Generator, types.FunctionType, types.BuiltinFunctionType, types.MethodType}
#: Packages whose objects are not searched for values.
_FOREIGN = ("builtins", "torch", "numpy")
#: Maximal length of a container with plain values; a longer one holds data.
_MOST_VALUES = 64
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


def fingerprint(model: object) -> tuple[tuple[object, ...], dict[object, object]]:
    """Return a fingerprint of a network: its modules with their modes, hooks and functions, and its plain values.

    Values are strings, numbers, True, False and None among the attributes of modules, of a callable object, and one
    level into the dicts, lists and objects there. They are apart because some of them count calls.
    """
    owner = owner_of(model)
    parts: list[object] = []
    values: dict[object, object] = {}
    if not isinstance(owner, nn.Module):
        for module in modules_of(model):
            _note(module, parts, values)
        if type(owner).__module__.partition(".")[0] not in _FOREIGN:
            _note_values(id(owner), getattr(owner, "__dict__", {}), values)
        return tuple(parts), values
    # By hand: this is done in every call, and takes a third of the time of `owner.modules()`.
    seen = set()
    ahead: list[nn.Module | None] = [owner]
    while ahead:
        module = ahead.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        _note(module, parts, values)
        ahead.extend(module._modules.values())
    return tuple(parts), values


def _note(module: nn.Module, parts: list[object], values: dict[object, object]) -> None:
    own = module.__dict__
    hooks = len(own.get("_forward_hooks", ())), len(own.get("_forward_pre_hooks", ()))  # a script's are elsewhere
    parts += (id(module), type(module), module.training, hooks)
    if "forward" in own:  # one that takes the place of the class's
        parts.append(id(own["forward"]))
    if type(module) not in _PLAIN:
        parts += [id(value) for value in own.values() if type(value) in _SWITCHES]
        parts += [name for name, value in own.get("_buffers", {}).items() if value is None]
        _note_values(id(module), own, values)


def _note_values(owner: int, own: Any, values: dict[object, object]) -> None:
    """Note the plain values among attributes and, one level deeper, in containers and objects; 1 is not True."""
    for name, value in own.items():
        kind = type(value)
        if kind in _VALUES:
            values[owner, name, kind] = value
        elif name in _TORCH_OWN or kind in _OPAQUE:
            continue
        elif kind is dict or kind is list or kind is tuple:
            if len(value) <= _MOST_VALUES:
                inside = value.items() if kind is dict else enumerate(value)
                values.update(((owner, name, k, type(item)), item) for k, item in inside if type(item) in _VALUES)
        elif isinstance(value, enum.Enum):
            values[owner, name, kind] = value
        elif kind.__module__.partition(".")[0] not in _FOREIGN and hasattr(value, "__dict__"):
            inside = value.__dict__.items()
            values.update(((owner, name, k, type(item)), item) for k, item in inside if type(item) in _VALUES)


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
        cells = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
        used = [value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__]
        return [*cells, *used, value.__defaults__, value.__kwdefaults__]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, type | types.ModuleType) or type(value).__module__.partition(".")[0] in ("builtins", "torch"):
        return []
    return list(getattr(value, "__dict__", {}).values())


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  (raises ValueError for an empty cell)
    except ValueError:
        return False
    return True


@functools.lru_cache(maxsize=1024)
def _names(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of globals that a function may use, including nested functions and comprehensions."""
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return tuple(dict.fromkeys(itertools.chain(code.co_names, *inner)))
