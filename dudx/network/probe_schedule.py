"""Schedule of probes: at the 1st, 2nd, 4th, 8th ... call; results are reused in between."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dudx.network.model_checks import Model
from dudx.network.modules import fingerprint, owner_of

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


_call_counts: weakref.WeakKeyDictionary[object, dict[object, _CallCount]] = weakref.WeakKeyDictionary()


def probed_on_schedule(model: Model, purpose: object, probe: Callable[[], Found]) -> Found:
    """Return the result of a probe, made at the 1st, 2nd, 4th, 8th ... call in the model's present mode.

    A probe that raises an error clears all records of the model, so that the next call raises it again.
    """
    owner = owner_of(model)
    mode = (purpose, getattr(model, "__func__", None), fingerprint(model))
    try:
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
