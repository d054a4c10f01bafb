"""Rules that all jets of one request share: how their streams mix in functions that are not linear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dudx.engines.taylor.symbols import Product


@dataclass(frozen=True)
class Layout:
    """Number and meaning of the streams of a jet, and what to do with functions that have no rule.

    First derivatives come first: no products of other streams enter them.
    """

    #: For each stream, the products of two streams that enter it, those of three, and so on (`symbols.mixing`).
    mixing: tuple[tuple[tuple[Product, ...], ...], ...]
    #: Called as without_rule(function, args, kwargs) for a function on jets that has no rule.
    without_rule: Callable[[Any, Any, Any], Any] = field(compare=False)
    #: Number of streams that are first derivatives.
    unmixed: int = field(init=False, compare=False)
    #: Highest derivative of a nonlinear function that is needed.
    top: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "unmixed", sum(not products for products in self.mixing))
        object.__setattr__(self, "top", max((1 + len(products) for products in self.mixing), default=1))

    @property
    def streams(self) -> int:
        return len(self.mixing)
