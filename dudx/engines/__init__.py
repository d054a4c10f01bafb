"""The engines. The folder is the registry: what defines an `Engine` with a name in one of its files is among them."""

from __future__ import annotations

from functools import cache

from dudx.engines.interface import Engine
from dudx.engines.registry import modules_in


@cache
def engines() -> dict[str, type[Engine]]:
    """The engines by name."""
    values = [value for module in modules_in(__name__) for value in vars(module).values()]
    kinds = [value for value in values if isinstance(value, type) and issubclass(value, Engine) and value.name]
    return {kind.name: kind for kind in sorted(dict.fromkeys(kinds), key=lambda kind: kind.name)}
