"""Nested containers of tensors and other values: their leaves, and containers of the same structure with others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def flattened(value: Any) -> list[Any]:
    """Return the leaves of nested tuples, lists and dictionaries, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for item in value for leaf in flattened(item)] if isinstance(value, tuple | list) else [value]


def rebuilt(value: Any, leaves: Iterator[Any]) -> Any:
    """Return containers of the same structure as `value` with other leaves."""
    return mapped(value, lambda _: next(leaves))


def mapped(value: Any, replace: Callable[[Any], Any]) -> Any:
    """Return containers of the same structure as `value` with every leaf replaced."""
    if isinstance(value, dict):
        return {key: mapped(item, replace) for key, item in value.items()}
    if isinstance(value, tuple | list):
        items = [mapped(item, replace) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return replace(value)


def mapped_beside(value: Any, other: Any, replace: Callable[[Any, Any], Any]) -> Any:
    """Return containers of the same structure as `value` with each leaf replaced, given the one of `other` beside it.

    Where the structures differ, parts of `value` are kept, and what `other` lacks is None.
    """
    if type(value) is dict and type(other) is dict:
        return {key: mapped_beside(item, other.get(key), replace) for key, item in value.items()}
    if isinstance(value, tuple | list) and type(other) is type(value) and len(other) == len(value):
        items = [mapped_beside(a, b, replace) for a, b in zip(value, other, strict=True)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return replace(value, other)
