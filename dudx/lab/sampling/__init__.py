"""Sampling methods for the points of the loss. Each file of this folder with a `SAMPLING` registers one by its name.

Settings may name several with their shares of the points of a batch, `"0.5 uniform + 0.5 adaptive"`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from dudx.errors import InputError
from dudx.lab.named_objects import held_in, look_up
from dudx.lab.sampling.mixture import Mixture
from dudx.lab.sampling.sampler import Sampling, SamplingContext

__all__ = ["Mixture", "Sampling", "SamplingContext", "sampling", "samplings"]


@cache
def samplings() -> dict[str, type[Sampling]]:
    """Return the sampling methods by their names in settings and on the command line."""
    return held_in(__name__, "SAMPLING")


def sampling(text: str, ramp: float = 0.0, **options: Any) -> Mixture:
    """Make the sampling that a text such as `"sobol"` or `"0.5 uniform + 0.5 adaptive"` describes.

    Args:
        text: names, or names with their shares of the points, which add up to 1.
        ramp: the duration after the start in which there are fewer points; see `Mixture`.
        options: options of the methods; each takes those that it has an argument for.
    """
    words = [part.split() for part in text.split("+")]
    if len(words) == 1 and len(words[0]) == 1:
        return Mixture([(1.0, _made(words[0][0], options))], ramp)
    if not all(len(pair) == 2 and _share(pair[0]) is not None for pair in words):
        raise InputError(
            f"A sampling is a name, or shares and names such as '0.5 uniform + 0.5 adaptive'; got {text!r}."
        )
    parts = [(_share(share) or 0.0, _made(name, options)) for share, name in words]
    if not math.isclose(sum(share for share, _ in parts), 1.0, abs_tol=1e-6):
        raise InputError(f"The shares of a sampling must add up to 1; in {text!r} they do not.")
    return Mixture(parts, ramp)


def _share(text: str) -> float | None:
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0 < share <= 1 else None


def _made(name: str, options: Mapping[str, Any]) -> Sampling:
    kind = look_up(name, samplings(), "sampling")
    taken = inspect.signature(kind).parameters
    return kind(**{key: value for key, value in options.items() if key in taken})
