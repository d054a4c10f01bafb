"""Schedule of probes: at the 1st, 2nd, 4th, 8th ... call; results are reused in between."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dudx.network.fingerprint import fingerprint
from dudx.network.model_checks import Model
from dudx.network.modules import owner_of

Found = TypeVar("Found")


@dataclass
class NetworkRecord:
    """Results of the checks of a network since its last probe."""

    #: The requests whose results were checked.
    checked: set[object] = field(default_factory=set)
    #: The axes and orders of these requests, each with how it was asked for.
    covered: set[object] = field(default_factory=set)
    #: The last request and how it was made; the next one is usually the same.
    last_request: tuple[object, object] | None = None
    #: True if the network draws random numbers.
    random: bool = False


@dataclass
class _CallCount:
    """Number of calls of a model in one mode for one purpose, and the result of the last probe."""

    count: int = 0
    found: Any = None


@dataclass
class _Values:
    """Plain values that a network held at its last call, and the different ones that each has been."""

    last: dict[object, object] = field(default_factory=dict)
    different: dict[object, set[object]] = field(default_factory=dict)
    steady: frozenset[object] = frozenset()


#: A value that has been more different ones than this counts calls or follows a schedule: it is no switch.
_MOST_DIFFERENT = 8
_values: weakref.WeakKeyDictionary[object, _Values] = weakref.WeakKeyDictionary()


def _steady(owner: object, values: dict[object, object]) -> frozenset[object]:
    """Return the plain values of a network that may be switches, with their names."""
    known = _values.setdefault(owner, _Values())
    if values != known.last:
        known.last = values
        for name, value in values.items():
            different = known.different.setdefault(name, set())
            if len(different) <= _MOST_DIFFERENT:
                different.add(value)
        switches = (name for name in values if len(known.different[name]) <= _MOST_DIFFERENT)
        known.steady = frozenset((name, values[name]) for name in switches)
    return known.steady


_call_counts: weakref.WeakKeyDictionary[object, dict[object, _CallCount]] = weakref.WeakKeyDictionary()


def probed_on_schedule(model: Model, purpose: object, probe: Callable[[], Found]) -> Found:
    """Return the result of a probe, made at the 1st, 2nd, 4th, 8th ... call in the model's present mode.

    A probe that raises an error clears all records of the model, so that the next call raises it again.
    """
    owner = owner_of(model)
    modules, values = fingerprint(model, owner)
    try:
        steady = _steady(owner, values) if values else None
        mode = (purpose, getattr(model, "__func__", None), modules, steady)
        calls = _call_counts.setdefault(owner, {}).setdefault(mode, _CallCount())
    except TypeError:  # without weak references or hash: probed at every call
        return probe()
    calls.count += 1
    if calls.count & (calls.count - 1) == 0:
        try:
            calls.found = probe()
        except BaseException:
            with contextlib.suppress(KeyError):  # a nested probe may have removed it already
                del _call_counts[owner]
            raise
    return calls.found
