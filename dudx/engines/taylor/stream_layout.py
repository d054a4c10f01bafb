"""What the arithmetic of jets has to know of their streams: how these mix in functions that are not linear."""

from __future__ import annotations

from dataclasses import dataclass, field

from dudx.engines.taylor.symbols import Product


@dataclass(frozen=True)
class Layout:
    """For each stream after the value, the products of two streams that enter it, those of three, … (`symbols.mixing`).

    First derivatives come first: nothing but themselves enters them.
    """

    mixing: tuple[tuple[tuple[Product, ...], ...], ...]
    #: How many streams are first derivatives.
    unmixed: int = field(init=False, compare=False)
    #: The highest derivative of a nonlinearity that is needed.
    top: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "unmixed", sum(not products for products in self.mixing))
        object.__setattr__(self, "top", max((1 + len(products) for products in self.mixing), default=1))

    @property
    def streams(self) -> int:
        return len(self.mixing)
