"""Any function on jets, by torch's own derivatives of it: exact, and slower than a rule.

The chain rule of all orders holds for functions of many variables as it does elementwise: where a product of streams
stands in the table of `symbols.mixing`, there stands the derivative of that order along these streams.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from dudx.backend.torch_classes import function_name
from dudx.engines.taylor.jet import Jet
from dudx.engines.taylor.nested_forward import Directional
from dudx.engines.taylor.stream_layout import Layout
from dudx.errors import SlowRuleWarning
from dudx.network.random_numbers import Kernels, OwnNumbers, process_states

_hinted: set[str] = set()


def through(
    function: Callable[..., Any], args: Any, kwargs: Any, hint: str | None = None, *, key: Hashable = None,
    gradient: bool = False,
) -> Any:  # fmt: skip
    """The function of jets, wherever these are among its arguments.

    Args:
        function: may return any container of tensors; what is no real or complex number among them is a constant.
        args: positional arguments.
        kwargs: arguments by name.
        hint: what is said once about its cost.
        key: by which the way of differentiating it is remembered; without one it is known by its name.
        gradient: its gradient is the only derivative it has, as for functions that define this themselves.
    """
    name = function_name(function)
    given = (tuple(args), dict(kwargs))
    jets = [leaf for leaf in flattened(given) if isinstance(leaf, Jet)]
    states = process_states(jets[0].device)
    with Kernels() as kernels:
        result = _called(function, given, [jet.value for jet in jets])
    leaves = flattened(result)
    moving = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and _continuous(leaf)]
    if not moving:
        return result

    def tensors(*values: Tensor) -> tuple[Tensor, ...]:
        # The same numbers for a value and for its derivatives.
        with OwnNumbers(states=states) if kernels.drawn else contextlib.nullcontext():
            found = flattened(_called(function, given, values))
        return tuple(found[i] for i in moving)

    point, streams = [jet.value for jet in jets], [jet.full() for jet in jets]
    with torch.inference_mode(False), torch.set_grad_enabled(torch.is_grad_enabled()):
        if any(value.is_inference() for value in point):
            point, streams = ([tensor.clone() for tensor in part] for part in (point, streams))
        key = key or (name, _settings(given))
        derived = _streams(Directional(tensors, point, name, key, gradient), streams, jets[0].layout)
    for i, stack in zip(moving, derived, strict=True):
        leaves[i] = Jet(jets[0].layout, leaves[i], stack)
    _say_once(
        hint
        or f"Taylor has no rule of its own for {name} and takes torch's derivatives of it: exact, but slower; "
        f"@dudx.taylor_rule({name}) adds a rule."
    )
    return rebuilt(result, iter(leaves))


def _streams(along: Directional, streams: list[Tensor], layout: Layout) -> list[Tensor]:
    """The streams of each result: those of the linear part, and to each the products that enter it."""
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
    """What tells variants of a function apart."""
    plain = (bool, int, float, complex, str, torch.dtype, type(None))
    return tuple(repr(leaf) for leaf in flattened(given) if isinstance(leaf, plain))


# -- what is inside of arguments and results -------------------------------------------------------------------------


def flattened(value: Any) -> list[Any]:
    """What is in containers, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for item in value for leaf in flattened(item)] if isinstance(value, tuple | list) else [value]


def rebuilt(value: Any, leaves: Iterator[Any]) -> Any:
    """Containers like these with other content."""
    if isinstance(value, dict):
        return {key: rebuilt(item, leaves) for key, item in value.items()}
    if isinstance(value, tuple | list):
        items = [rebuilt(item, leaves) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return next(leaves)


def _called(function: Callable[..., Any], given: tuple[Any, Any], tensors: Sequence[Tensor]) -> Any:
    """The function with the tensors in place of the jets, in order."""
    ahead = iter(tensors)
    args, kwargs = rebuilt(given, iter([next(ahead) if isinstance(leaf, Jet) else leaf for leaf in flattened(given)]))
    return function(*args, **kwargs)


def _continuous(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _say_once(hint: str) -> None:
    if hint not in _hinted:
        _hinted.add(hint)
        warnings.warn(hint, SlowRuleWarning, stacklevel=2)
