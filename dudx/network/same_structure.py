"""Compare two networks in everything but the values of their parameters and buffers."""

from __future__ import annotations

import functools
import types
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

#: Attributes that are no settings: tensors and submodules are compared separately, the rest belongs to torch.
_APART = {"_parameters", "_buffers", "_modules", "_compiled_call_impl"}
#: Types that are compared with ==.
_PLAIN = (
    bool, int, float, complex, str, bytes, type, set, frozenset, range,
    torch.dtype, torch.device, types.BuiltinFunctionType,
)  # fmt: skip


def first_difference(first: nn.Module, other: nn.Module) -> str | None:
    """Return the name of the first difference of two networks, or None; what cannot be compared counts as equal."""
    return _of_modules(first, other, "", False, set())


def _of_modules(a: nn.Module, b: nn.Module, place: str, by_value: bool, seen: set[tuple[int, int]]) -> str | None:
    # Each parametrized layer has its own class, of the same name.
    if (type(a).__module__, type(a).__qualname__) != (type(b).__module__, type(b).__qualname__):
        return f"{place or 'its class'} ({type(a).__name__} and {type(b).__name__})"
    for own, others in ((a._parameters, b._parameters), (a._buffers, b._buffers)):
        if own.keys() != others.keys():
            return f"the tensors of {place or 'the network'}"
        for name, tensor in own.items():
            if not _alike(tensor, others[name], by_value):
                return _inside(place, name)
    if list(a._modules) != list(b._modules):
        return f"the layers of {place or 'the network'}"
    for name, module in a._modules.items():
        found = _of(module, b._modules[name], _inside(place, name), by_value, seen)
        if found is not None:
            return found
    return _of_attributes(a, b, place, seen, _APART)


def _of_attributes(
    a: Any, b: Any, place: str, seen: set[tuple[int, int]], apart: set[str] | frozenset[str] = frozenset()
) -> str | None:
    own, others = vars(a), vars(b)
    for name in sorted((own.keys() | others.keys()) - apart):
        found = _of(own.get(name), others.get(name), _inside(place, name), True, seen)
        if found is not None:
            return found
    return None


def _of(a: Any, b: Any, place: str, by_value: bool, seen: set[tuple[int, int]]) -> str | None:
    """Return where two values differ. Modules that are no layers keep their numbers, which are compared too."""
    if a is b or (id(a), id(b)) in seen:
        return None
    if hasattr(a, "__dict__"):  # temporary objects are left out, as their ids may be reused
        seen.add((id(a), id(b)))
    if isinstance(a, nn.Module) and isinstance(b, nn.Module):
        return _of_modules(a, b, place, by_value, seen)
    if type(a) is not type(b):
        return place
    if isinstance(a, Tensor):
        return None if _alike(a, b, True) else place
    if isinstance(a, np.ndarray):
        return None if np.array_equal(a, b) else place
    if isinstance(a, _PLAIN):
        return None if a == b else place
    parts, others = _parts(a), _parts(b)
    if parts is None or others is None:
        return _of_attributes(a, b, place, seen) if hasattr(a, "__dict__") else None
    if len(parts) != len(others):
        return place
    found = (_of(part, other, place, True, seen) for part, other in zip(parts, others, strict=True))
    return next((where for where in found if where is not None), None)


def _parts(value: Any) -> list[Any] | None:
    """Return the parts of a container or a function; None for other objects."""
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, dict):
        # The keys of hooks are unique numbers.
        return [part for key, item in value.items() for part in ((item,) if isinstance(key, int) else (key, item))]
    if isinstance(value, functools.partial):
        return [value.func, list(value.args), dict(value.keywords)]
    if isinstance(value, types.MethodType):
        return [value.__func__]
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
        return [value.__code__.co_code, *value.__code__.co_names, _constants(value), value.__defaults__, cells]
    return None


def _constants(function: types.FunctionType) -> list[Any]:
    """Return the constants of a function and the code of functions nested in it."""
    return [part.co_code if isinstance(part, types.CodeType) else part for part in function.__code__.co_consts]


def _alike(a: Tensor | None, b: Tensor | None, by_value: bool) -> bool:
    if a is None or b is None:
        return a is b
    kinds = [(t.shape, t.dtype, t.device, t.requires_grad) for t in (a, b)]
    return kinds[0] == kinds[1] and (not by_value or torch.equal(a, b))


def _inside(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
