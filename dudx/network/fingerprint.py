"""Fingerprint of a network: while it is the same, what was found out about the network holds."""

from __future__ import annotations

import enum
import functools
import numbers
import sys
import types
from collections import deque
from typing import Any

import numpy as np
import torch
from torch import nn

from dudx.network.modules import closure_of, modules_of, names_used

#: Common layers without attributes that change their behaviour.
_PLAIN = {nn.Linear, nn.Tanh, nn.Sequential, nn.SiLU, nn.Sigmoid, nn.ReLU, nn.Softplus, nn.ModuleList, nn.Identity}
_CALLED = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_SWITCHES = {bool, *_CALLED}
_VALUES = {str, float, int, bool, type(None)}
_MORE_VALUES = (numbers.Number, np.generic, enum.Enum, bytes)
#: Attributes of every module, which torch keeps for itself; hooks, modules and buffers are noted by themselves.
_TORCH_OWN = frozenset(nn.Module().__dict__)
_OPAQUE = {nn.Parameter, torch.Generator, types.ModuleType, type, *_CALLED}
#: Packages whose classes and objects are not searched for values.
_FOREIGN = {*sys.stdlib_module_names, "torch", "numpy", "dudx"} - {"types", "__main__"}
#: Maximal nesting of containers and objects with values, and the length of a container above which it holds data.
_DEPTH, _MOST_VALUES = 3, 64


def fingerprint(model: object, owner: object) -> tuple[tuple[object, ...], dict[object, object]]:
    """Return the modules of a network, with their modes, hooks and functions, and its plain values.

    Values are strings, numbers, True, False, None, and how often torch has written into a tensor. They are looked for
    among the attributes of modules, of their classes and of a callable object, in the containers and objects there, and
    among the globals and outer variables that the code of users reads. They are apart because some of them count calls.

    Args:
        model: the network.
        owner: the network itself, or the object whose method it is.
    """
    notes = _Notes()
    if isinstance(owner, nn.Module):
        notes.module(owner)
    else:
        for module in modules_of(model):
            notes.module(module)
        if isinstance(owner, types.FunctionType):
            notes.function(owner)
        else:
            notes.inside((), owner, _DEPTH + 1)
            notes.of_class(type(owner), {})
    return tuple(notes.parts), notes.values


class _Notes:
    """Parts and values found so far; by hand and with few calls, as this is done at every use of a network."""

    def __init__(self) -> None:
        self.parts: list[object] = []
        self.values: dict[object, object] = {}
        self.seen: set[int] = set()

    def module(self, top: nn.Module | None) -> None:
        """Note a module and all inside of it."""
        ahead = [top]
        while ahead:
            module = ahead.pop()
            if module is None or id(module) in self.seen:
                continue
            self.seen.add(id(module))
            own, kind = module.__dict__, type(module)
            hooks = len(own.get("_forward_hooks", ())), len(own.get("_forward_pre_hooks", ()))  # a script's: elsewhere
            self.parts += (id(module), kind, module.training, hooks)
            if "forward" in own:  # one that takes the place of the class's
                self.parts.append(id(own["forward"]))
            if kind not in _PLAIN:
                self.parts += [id(value) for value in own.values() if type(value) in _SWITCHES]
                self.parts += [name for name, value in own.get("_buffers", {}).items() if value is None]
                self.attributes(id(module), own, _DEPTH)
                self.of_class(kind, own)
            ahead.extend(module._modules.values())

    def of_class(self, kind: type, own: dict[str, Any]) -> None:
        """Note what classes that are not torch's hold and what their methods read."""
        classes, functions = written_by_users(kind)
        for one in classes:
            self.parts.append(id(vars(one).get("forward")))
            self.attributes(one, vars(one), 0)
        for function in functions:
            self.function(function)
        if classes:
            for name, buffer in own.get("_buffers", {}).items():
                self.inside((id(own), name), buffer, 0)

    def function(self, function: types.FunctionType) -> None:
        """Note the globals and the variables of outer functions that a function reads."""
        read = function.__globals__
        for name in names_used(function.__code__):
            if name in read:
                self.inside((id(read), name), read[name], 1)
        for number, content in enumerate(closure_of(function)):
            self.inside((function.__code__, number), content, _DEPTH)

    def attributes(self, owner: object, own: Any, depth: int) -> None:
        """Note the values among attributes."""
        for name, value in own.items():
            kind = type(value)
            if kind in _VALUES:
                self.values[owner, name, kind] = value
            elif name not in _TORCH_OWN and kind not in _OPAQUE:
                self.inside((owner, name), value, depth)

    def inside(self, path: tuple[object, ...], value: Any, depth: int) -> None:
        """Note a value, or those in a container or an object, some levels deep; 1 is not True."""
        kind = type(value)
        if kind in _VALUES or isinstance(value, _MORE_VALUES):
            self.values[path, kind] = value
        elif kind in _OPAQUE or isinstance(value, type):
            return
        elif isinstance(value, torch.Tensor):
            self.values[path, kind] = (id(value), 0 if value.is_inference() else value._version)
        elif isinstance(value, np.ndarray):
            if value.size <= _MOST_VALUES:
                self.values[path, kind] = value.tobytes()
        elif isinstance(value, nn.Module):
            self.module(value)
        elif depth == 0:
            return
        elif isinstance(value, dict | list | tuple | deque):
            if len(value) <= _MOST_VALUES:
                for name, item in value.items() if isinstance(value, dict) else enumerate(value):
                    self.inside((*path, name), item, depth - 1)
        elif isinstance(value, set | frozenset):
            if len(value) <= _MOST_VALUES:
                self.values[path, kind] = frozenset(value)
        elif _is_of_a_user(kind) and id(value) not in self.seen:
            self.seen.add(id(value))
            self.attributes(path, getattr(value, "__dict__", {}), depth - 1)
            for name in getattr(kind, "__slots__", ()):
                self.inside((*path, name), getattr(value, name, None), depth - 1)


@functools.lru_cache(maxsize=4096)
def _is_of_a_user(kind: type) -> bool:
    """Return True for a class that is neither Python's, torch's nor ours, or for a plain namespace."""
    return kind.__module__.partition(".")[0] not in _FOREIGN


@functools.lru_cache(maxsize=1024)
def written_by_users(kind: type) -> tuple[tuple[type, ...], tuple[types.FunctionType, ...]]:
    """Return the classes among the bases of a class that are not torch's, and their methods."""
    classes = tuple(one for one in kind.__mro__ if _is_of_a_user(one))
    functions = (value for one in classes for name, value in vars(one).items() if name != "__init__")
    return classes, tuple(value for value in functions if isinstance(value, types.FunctionType))
