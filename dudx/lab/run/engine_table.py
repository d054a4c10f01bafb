"""Engines in tables, lists and progress bars: their order, labels and summaries, and the text of their steps."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dudx.engines import engines
from dudx.engines.interface import Engine, state_of


class Row(NamedTuple):
    """An engine in tables."""

    label: str
    summary: str


#: The engines of the package by name, in the order of tables.
ROWS = {
    "ad": Row("AD", "automatic differentiation, batched; exact"),
    "fd": Row("FD", "finite differences, one calibrated step"),
    "efd": Row("eFD", "finite differences, a step per order"),
    "sfd": Row("sFD", "finite differences, a random step per point and call"),
    "taylor": Row("Taylor (ours)", "Taylor propagation, forward; exact"),
    "per-sample": Row("AD, sample by sample", "automatic differentiation, sample by sample; exact and slow"),
    "stde": Row("STDE", "a random few of an operator's terms by Taylor; unbiased, for many dimensions"),
}


def engines_in_order() -> dict[str, type[Engine]]:
    """All engines by name: those of the table in its order, then others by name."""
    found = engines()
    return {name: found[name] for name in in_table_order(found)}


def in_table_order(names: Iterable[str]) -> list[str]:
    """Names of engines, each once: those of the table in its order, then others by name."""
    order = list(ROWS)
    return sorted(set(names), key=lambda name: (order.index(name) if name in order else len(order), name))


def engine_summary(name: str) -> str:
    """One line on an engine: that of the table, or the first line of its docstring."""
    if name in ROWS:
        return ROWS[name].summary
    return (inspect.getdoc(engines()[name]) or "").partition("\n")[0].rstrip(".")


def engine_label(name: str) -> str:
    """The label of an engine in tables; nothing is imported for it, so that a table can be made of foreign data."""
    if name in ROWS:
        return ROWS[name].label
    module, _, attribute = name.partition(":")
    kind = getattr(sys.modules.get(module), attribute, None)
    if not (isinstance(kind, type) and issubclass(kind, Engine)):
        return name.rpartition(":")[2] or name
    return kind.name or kind.__name__


def step_text(engine: Engine) -> str:
    """The steps of an engine, for progress bars and metrics; empty without any."""
    state = state_of(engine)
    return " ".join(f"{step:.2e}" for step in _numbers(state.get("steps", state.get("step"))))


def _numbers(steps: Any) -> list[float]:
    if isinstance(steps, Mapping):
        steps = list(steps.values())
    if isinstance(steps, tuple | list):
        return [number for step in steps for number in _numbers(step)]
    return [float(steps)] if isinstance(steps, int | float) else []
