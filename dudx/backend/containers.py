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
