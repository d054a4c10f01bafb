"""Restore the buffers and the plain Python state of a network after a probe."""

from __future__ import annotations

import contextlib
import copy
import dis
import functools
import itertools
import random
import sys
import types
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dudx.network.batch_bound import unbound
from dudx.network.fingerprint import written_by_users
from dudx.network.modules import modules_of, owner_of

#: Limits: nesting of objects, items of a container, numbers of an array.
_DEPTH, _MAX_ITEMS, _MAX_NUMBERS = 4, 1000, 2**16
_PLAIN = (bool, int, float, complex, str, bytes, tuple, type(None))
#: Attributes of a module that belong to torch. Buffers are saved separately; parameters and layers are not saved.
_TORCH_OWN = {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_compiled_call_impl"}

Undo = Callable[[], object]


@contextlib.contextmanager
def unchanged_state(model: object) -> Iterator[None]:
    """Restore a model's buffers and plain Python state on exit.

    Restored are:

    - attributes of the modules, of their classes and of objects they hold, including lists, dicts, sets and arrays up
      to 2¹⁶ numbers;
    - `nonlocal` and `global` variables that a function or a method assigns, and objects in its closure;
    - random generators that these hold.

    Not restored are global objects changed in place, objects nested more than four levels deep, items of containers
    longer than 1000, other iterators than counters, what hooks keep, files, the environment, and the global generators
    of `random` and `numpy.random`, which belong to the process.
    """
    modules = modules_of(model)
    buffers = [(m._buffers, name, b, b.clone()) for m in modules for name, b in m._buffers.items() if b is not None]
    undo = _Snapshot([*modules, owner_of(unbound(model)[0])]).undo
    try:
        yield
    finally:
        for restore in reversed(undo):
            restore()
        with torch.no_grad():
            for owner, name, buffer, value in buffers:
                owner[name] = buffer  # a forward may have replaced the tensor
                if not torch.equal(buffer, value):  # a needless write would invalidate graphs that hold the buffer
                    buffer.copy_(value)


class _Snapshot:
    """The state reachable from some objects, as a list of functions that restore it."""

    def __init__(self, roots: list[object]):
        self.undo: list[Undo] = []
        self.seen: set[int] = set()
        for root in roots:
            self._save(root, _DEPTH)

    def _save(self, value: Any, depth: int) -> None:
        if value is None or isinstance(value, bool | int | float | complex | str | bytes) or id(value) in self.seen:
            return
        self.seen.add(id(value))
        if isinstance(value, Tensor | np.ndarray):
            self._save_array(value)
        elif isinstance(value, list | deque | dict | set | tuple | bytearray | array):
            self._save_container(value, depth)
        elif isinstance(value, torch.Generator):
            state = value.get_state()
            self.undo.append(lambda: value.set_state(state))
        elif isinstance(value, random.Random):
            numbers = value.getstate()
            self.undo.append(lambda: value.setstate(numbers))
        elif isinstance(value, np.random.Generator | np.random.RandomState):
            bits: Any = value.bit_generator if isinstance(value, np.random.Generator) else value._bit_generator
            self.undo.append(functools.partial(setattr, bits, "state", bits.state))
        elif depth:
            self._save_object(value, depth - 1)

    def _save_array(self, value: Any) -> None:
        if isinstance(value, np.ndarray):
            if value.size <= _MAX_NUMBERS and value.flags.writeable and value.dtype != object:
                before = value.copy()
                self.undo.append(lambda: np.copyto(value, before))
            return
        fixed = isinstance(value, nn.Parameter) or value.requires_grad or value.is_inference() or value.is_meta
        if not fixed and value.layout is torch.strided and value.numel() <= _MAX_NUMBERS:
            self.undo.append(functools.partial(_write_back, value, value._version, value.clone()))

    def _save_container(self, value: Any, depth: int) -> None:
        size = len(value)
        if not isinstance(value, tuple):
            if size <= _MAX_ITEMS:
                self.undo.append(functools.partial(_refill, value, copy.copy(value)))
            elif isinstance(value, list):
                self.undo.append(lambda: value.__delitem__(slice(size, None)))
        if size <= _MAX_ITEMS and not isinstance(value, bytearray | array):
            for item in list(value.values() if isinstance(value, dict) else value):
                self._save(item, depth)

    def _save_object(self, value: Any, depth: int) -> None:
        if isinstance(value, types.MethodType):
            self._save(value.__self__, depth)
            self._save(value.__func__, depth)
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self._save(part, depth)
        elif isinstance(value, types.FunctionType):
            self._save_function(value, depth)
        elif isinstance(value, nn.Module | types.SimpleNamespace) or _is_of_a_user(value):
            self._save_attributes(value, depth)
            self._save_class(type(value), depth)

    def _save_function(self, function: types.FunctionType, depth: int) -> None:
        written = _written_names(function.__code__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if cell == types.CellType():
                continue
            if name in written:
                self.undo.append(functools.partial(setattr, cell, "cell_contents", cell.cell_contents))
            self._save(cell.cell_contents, depth)
        for name in written & function.__globals__.keys():
            self.undo.append(functools.partial(function.__globals__.__setitem__, name, function.__globals__[name]))
        self._save(function.__defaults__, depth)
        self._save(function.__kwdefaults__, depth)
        self.undo.append(functools.partial(_refill, function.__dict__, function.__dict__.copy()))

    def _save_class(self, kind: type, depth: int) -> None:
        """Save what a user's classes hold, and the globals that their methods assign."""
        classes, functions = written_by_users(kind)
        for one in classes:
            if id(one) not in self.seen:
                self.seen.add(id(one))
                plain = {k: v for k, v in vars(one).items() if isinstance(v, _PLAIN)}
                self.undo.append(functools.partial(_restore_class, one, plain))
                for item in list(vars(one).values()):
                    if isinstance(item, list | dict | set | deque):
                        self._save(item, depth)
        for function in functions:
            self._save(function, depth)

    def _save_attributes(self, value: Any, depth: int) -> None:
        for name in getattr(type(value), "__slots__", ()):
            if hasattr(value, name):
                self.undo.append(functools.partial(setattr, value, name, getattr(value, name)))
        own = getattr(value, "__dict__", {})
        apart = _TORCH_OWN if isinstance(value, nn.Module) else set()
        before = {
            name: copy.copy(item) if isinstance(item, itertools.count) else item
            for name, item in own.items()
            if name not in apart
        }
        self.undo.append(functools.partial(_restore_attributes, own, before, apart))
        for name, item in before.items():
            if not (isinstance(value, nn.Module) and name.endswith("_hooks")):
                self._save(item, depth)


def _write_back(tensor: Tensor, version: int, before: Tensor) -> None:
    if tensor._version != version:
        with torch.no_grad():
            tensor.copy_(before)


def _refill(container: Any, before: Any) -> None:
    """Restore the items of a container if they changed."""
    if isinstance(container, dict):
        alike = container.keys() == before.keys() and all(container[key] is before[key] for key in before)
    elif isinstance(container, set):
        alike = container == before
    else:
        alike = len(container) == len(before) and all(a is b for a, b in zip(container, before, strict=True))
    if not alike:
        container.clear() if not isinstance(container, array) else container.__delitem__(slice(None))
        container.update(before) if isinstance(container, dict | set) else container.extend(before)


def _restore_attributes(own: dict[str, Any], before: dict[str, Any], apart: set[str]) -> None:
    for name in own.keys() - before.keys() - apart:
        del own[name]
    for name, value in before.items():
        if name not in own or own[name] is not value:
            own[name] = value


def _restore_class(kind: type, before: dict[str, Any]) -> None:
    for name, value in before.items():
        if vars(kind).get(name) is not value:
            setattr(kind, name, value)


def _is_of_a_user(value: object) -> bool:
    """Return True for an object with attributes whose class is defined in no library."""
    package = type(value).__module__.partition(".")[0]
    library = package in sys.stdlib_module_names or package in ("torch", "numpy", "dudx")
    scripted = isinstance(value, torch.jit.ScriptModule)
    attributes = hasattr(value, "__dict__") or hasattr(type(value), "__slots__")
    return attributes and not isinstance(value, type) and not scripted and (
        not library or package == "__main__"
    )  # fmt: skip


@functools.lru_cache(maxsize=1024)
def _written_names(code: types.CodeType) -> frozenset[str]:
    """Return the names of `nonlocal` and `global` variables that a function assigns."""
    stored = {i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_DEREF", "STORE_GLOBAL")}
    inner = (_written_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return frozenset(stored).union(*inner)
