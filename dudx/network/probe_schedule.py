"""Looking at a network now and then: what is found holds until the next look, and most meetings cost nothing."""

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
    """What is known of a network since it was looked at last."""

    #: The requests whose results were looked at.
    checked: set[object] = field(default_factory=set)
    #: The axes and orders of these requests, each with how it was asked for.
    covered: set[object] = field(default_factory=set)
    #: The last request that was made, which is mostly the next one too, and how.
    last_request: tuple[object, object] | None = None
    #: Whether it draws random numbers.
    random: bool = False


@dataclass
class _Meetings:
    """How often a model was met in one mode for one purpose, and what the last look found."""

    count: int = 0
    found: Any = None


_met: weakref.WeakKeyDictionary[object, dict[object, _Meetings]] = weakref.WeakKeyDictionary()


def probed_on_schedule(model: Model, purpose: object, look: Callable[[], Found]) -> Found:
    """What `look` finds at the 1st, 2nd, 4th, 8th … meeting with a model in its present mode; else what it found last.

    A look that raises an error is forgotten with all the others at this model, so that what was refused is refused
    again.
    """
    owner = owner_of(model)
    mode = (purpose, getattr(model, "__func__", None), fingerprint(model))
    try:
        meetings = _met.setdefault(owner, {}).setdefault(mode, _Meetings())
    except TypeError:  # not weakly referable or not hashable: such a callable is looked at every time
        return look()
    meetings.count += 1
    if meetings.count & (meetings.count - 1) == 0:
        try:
            meetings.found = look()
        except BaseException:
            with contextlib.suppress(KeyError):  # a look inside this one may have forgotten it already
                del _met[owner]
            raise
    return meetings.found
