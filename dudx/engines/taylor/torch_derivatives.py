"""Any function on jets by torch's own derivatives of it: exact, and slower than a rule.

The chain rule of all orders holds for functions of many variables as for elementwise functions: a product of streams
in the table of `symbols.mixing` becomes the derivative of that order along these streams.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from dudx.backend.containers import flattened, mapped, rebuilt
from dudx.backend.torch_classes import function_name
from dudx.engines.taylor.directional_derivatives import DirectionalDerivatives
from dudx.engines.taylor.jet import Jet
from dudx.engines.taylor.stream_layout import Layout
from dudx.errors import SlowRuleWarning
from dudx.network.random_numbers import KernelMonitor, PrivateRandomNumbers, process_generator_states

_hinted: set[str] = set()


def through(
    function: Callable[..., Any], args: Any, kwargs: Any, hint: str | None = None, *, key: Hashable = None,
    gradient: bool = False,
) -> Any:  # fmt: skip
    """Apply a function to arguments that contain jets.

    Args:
        function: may return any container of tensors; results that are not real or complex numbers are constants.
        args: positional arguments.
        kwargs: arguments by name.
        hint: warning about the cost, issued once.
        key: functions with equal keys share a method of differentiation; by default the function's name and settings.
        gradient: the function defines its gradient itself, which is then its only derivative.
    """
    name = function_name(function)
    given = (tuple(args), dict(kwargs))
    jets = [leaf for leaf in flattened(given) if isinstance(leaf, Jet)]
    states = process_generator_states(jets[0].device)
    with KernelMonitor() as kernels:
        result = _call(function, given, [jet.value for jet in jets])
    leaves = flattened(result)
    moving = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and _is_continuous(leaf)]
    if not moving:
        return result

    def tensors(*values: Tensor) -> tuple[Tensor, ...]:
        # Values and derivatives use the same random numbers.
        with PrivateRandomNumbers(states=states) if kernels.drawn else contextlib.nullcontext():
            found = flattened(_call(function, given, values))
        return tuple(found[i] for i in moving)

    point, streams = [jet.value for jet in jets], [jet.full() for jet in jets]
    with torch.inference_mode(False), torch.set_grad_enabled(torch.is_grad_enabled()):
        if any(value.is_inference() for value in point):
            point, streams = ([tensor.clone() for tensor in part] for part in (point, streams))
        key = key or (name, _settings(given))
        derived = _streams(DirectionalDerivatives(tensors, point, name, key, gradient), streams, jets[0].layout)
    for i, stack in zip(moving, derived, strict=True):
        leaves[i] = Jet(jets[0].layout, leaves[i], stack)
    _warn_once(
        hint
        or f"Taylor has no rule for {name} and uses torch's derivatives of it: exact, but slower; "
        f"@dudx.taylor_rule({name}) adds a rule."
    )
    return rebuilt(result, iter(leaves))


def _streams(along: DirectionalDerivatives, streams: list[Tensor], layout: Layout) -> list[Tensor]:
    """Return the streams of each result: the derivative along each stream plus the products that enter it."""
    totals = [list(stack.unbind(0)) for stack in along([streams])]
    for length in range(2, layout.top + 1):
        wanted = [mixing[length - 2] if length - 2 < len(mixing) else () for mixing in layout.mixing]
        numbers: dict[tuple[int, ...], int] = {}
        for products in wanted:
            for product in products:
                numbers.setdefault(product.streams, len(numbers))
        if not numbers:
            continue
        vectors = [[stack[[factors[k] for factors in numbers]] for stack in streams] for k in range(length)]
        for total, products_of in zip(totals, along(vectors), strict=True):
            for stream, products in enumerate(wanted):
                for product in products:
                    total[stream] = total[stream] + product.coefficient * products_of[numbers[product.streams]]
    return [torch.stack(total) for total in totals]


def _settings(given: Any) -> tuple[str, ...]:
    """Return the arguments that are plain values, which distinguish variants of a function."""
    plain = (bool, int, float, complex, str, torch.dtype, type(None))
    return tuple(repr(leaf) for leaf in flattened(given) if isinstance(leaf, plain))


def _call(function: Callable[..., Any], given: tuple[Any, Any], tensors: Sequence[Tensor]) -> Any:
    """Call the function with tensors in place of the jets, in order."""
    following = iter(tensors)
    args, kwargs = mapped(given, lambda leaf: next(following) if isinstance(leaf, Jet) else leaf)
    return function(*args, **kwargs)


def _is_continuous(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _warn_once(hint: str) -> None:
    if hint not in _hinted:
        _hinted.add(hint)
        warnings.warn(hint, SlowRuleWarning, stacklevel=2)
