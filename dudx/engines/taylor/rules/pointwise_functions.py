"""Elementwise functions by torch's derivatives and the chain rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.backend.containers import flattened
from dudx.backend.forward_mode import jvp
from dudx.engines.taylor.chain_and_product import compose
from dudx.engines.taylor.jet import Jet
from dudx.engines.taylor.rule_helpers import is_jet, written
from dudx.engines.taylor.rule_table import RULES, NotCoveredError

_NAMES = [
    "acos", "acosh", "angle", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "asin", "asinh", "atan",
    "atanh", "digamma", "erfinv", "exp2", "frac", "lgamma", "log10", "log2", "logit", "mvlgamma", "nan_to_num",
    "polygamma", "tan", "selu", "celu", "hardshrink", "threshold",
]  # fmt: skip
_SPECIAL = [
    "digamma", "entr", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammaln", "log1p",
    "log_ndtr", "logit", "multigammaln", "ndtr", "ndtri", "psi", "round", "polygamma",
]  # fmt: skip
_LAYERS = [
    "celu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "relu6", "selu", "softshrink", "softsign",
    "tanhshrink", "threshold",
]  # fmt: skip


def derivatives_of(function: Callable[[Tensor], Tensor], x: Tensor, orders: int) -> tuple[Tensor, ...]:
    """Return an elementwise function and its first derivatives at x, by nested forward mode."""

    def up_to(order: int) -> Callable[[Tensor], tuple[Tensor, ...]]:
        if order == 0:
            return lambda x: (function(x),)

        def known(x: Tensor) -> tuple[Tensor, ...]:
            values, slopes = jvp(up_to(order - 1), (x,), (torch.ones_like(x),))
            return (*values, slopes[-1])

        return known

    return up_to(orders)(x)


def pointwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule of an elementwise function of one tensor; its other arguments are constants."""

    def rule(*args: Any, **kwargs: Any) -> Jet:
        jets = [leaf for leaf in flattened((args, list(kwargs.values()))) if is_jet(leaf)]
        # A function of a complex number need not be holomorphic.
        if len(jets) != 1 or jets[0].dtype.is_complex or kwargs.get("out") is not None:
            raise NotCoveredError
        inplace = kwargs.pop("inplace", False)

        def of(x: Tensor) -> Tensor:
            given = [x if is_jet(argument) else argument for argument in args]
            return function(*given, **{name: x if is_jet(value) else value for name, value in kwargs.items()})

        try:
            found = derivatives_of(of, jets[0].value, jets[0].layout.top)
        except NotImplementedError:
            raise NotCoveredError from None
        return written(jets[0], compose(jets[0], found), inplace)

    return rule


def _register() -> None:
    for owners, names in (((torch, Tensor), _NAMES), ((torch.special,), _SPECIAL), ((F,), _LAYERS)):
        for owner in owners:
            for name in names:
                function = getattr(owner, name, None)
                if function is not None and function not in RULES:
                    RULES[function] = pointwise(function)


_register()
