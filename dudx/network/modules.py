"""The modules of a network, also of one that hides in a function, in another object or in a container."""

from __future__ import annotations

import functools
import inspect
import itertools
import types
from typing import Any

import torch
from torch import nn

#: Layers that have no switch, and are most of a network.
_PLAIN = {nn.Linear, nn.Tanh, nn.Sequential, nn.SiLU, nn.Sigmoid, nn.ReLU, nn.Softplus, nn.ModuleList, nn.Identity}
_SWITCHES = {bool, types.FunctionType, types.BuiltinFunctionType, types.MethodType}
# How many functions and objects inside each other are looked into for modules, and how long a container may be.
_DEPTH, _MOST = 3, 1000


def owner_of(model: object) -> object:
    """The object that a bound method belongs to, or the model itself."""
    return getattr(model, "__self__", model)


def type_name(model: object) -> str:
    """The class of a module, the name of a function."""
    return type(model).__name__ if isinstance(model, nn.Module) else getattr(model, "__name__", type(model).__name__)


def modules_of(model: object) -> list[nn.Module]:
    """All modules of a network, also of one that hides in a function, `lambda x: net(x)[0]`, or in another object."""
    owner = owner_of(model)
    if isinstance(owner, nn.Module):
        return list(owner.modules())
    found: dict[int, nn.Module] = {}
    _collect(owner, found, set(), _DEPTH)
    return list(found.values())


def scripted(model: object) -> bool:
    """Whether a part of it is TorchScript, which cannot be mapped over.

    It prepares itself at its first pass. If that is inside of torch.func.vmap, it takes parameters for constants ever
    after, and the network is trained no more; if not, torch fails there.
    """
    kind = torch.jit.RecursiveScriptModule  # type: ignore[reportPrivateImportUsage]  (traced modules are no such)
    return isinstance(owner_of(model), torch.jit.ScriptFunction) or any(
        isinstance(module, kind) for module in modules_of(model)
    )


def fingerprint(model: object) -> tuple[object, ...]:
    """Which modules a network is made of, in which mode and with which hooks: with others it is another network."""
    owner = owner_of(model)
    parts: list[object] = []
    if not isinstance(owner, nn.Module):
        for module in modules_of(model):
            _note(module, parts)
        return tuple(parts)
    # By hand: this is done in every call, and takes a third of the time of `owner.modules()`.
    seen = set()
    ahead: list[nn.Module | None] = [owner]
    while ahead:
        module = ahead.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        _note(module, parts)
        ahead.extend(module._modules.values())
    return tuple(parts)


def _note(module: nn.Module, parts: list[object]) -> None:
    own = module.__dict__
    hooks = len(own.get("_forward_hooks", ())), len(own.get("_forward_pre_hooks", ()))  # a script's are elsewhere
    parts += (id(module), type(module), module.training, hooks)
    if "forward" in own:  # one that takes the place of the class's
        parts.append(id(own["forward"]))
    if type(module) not in _PLAIN:
        # Switches and functions. Numbers may count calls, and a network is not another one at each of them.
        parts += [id(value) for value in own.values() if type(value) in _SWITCHES]
        parts += [name for name, value in own.get("_buffers", {}).items() if value is None]


def _collect(value: object, found: dict[int, nn.Module], seen: set[int], depth: int) -> None:
    """Note the modules in what a function uses, in an object's attributes and in containers, a few objects deep."""
    value = value.__self__ if isinstance(value, types.MethodType) else value
    if isinstance(value, nn.Module):
        found.update((id(module), module) for module in value.modules())
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, list | tuple | set | frozenset | dict):
        # A longer one holds data rather than networks, and is not to be gone through in every call.
        items = value.values() if isinstance(value, dict) else value
        for item in items if len(value) <= _MOST else ():
            _collect(item, found, seen, depth)
    elif depth:
        for item in _inside(value):
            _collect(item, found, seen, depth - 1)


def _inside(value: Any) -> list[object]:
    """What a function or an object of a user's class refers to."""
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
        cell.cell_contents  # noqa: B018  (there is no other way to ask)
    except ValueError:
        return False
    return True


@functools.lru_cache(maxsize=1024)
def _names(code: types.CodeType) -> tuple[str, ...]:
    """The names of globals that a function may use, also in the functions and comprehensions inside it."""
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return tuple(dict.fromkeys(itertools.chain(code.co_names, *inner)))
