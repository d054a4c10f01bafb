"""Recorder of the uses of parameters in a function of samples, so that its backward pass keeps samples apart.

A sample's gradient of a parameter is lost where autograd sums over rows. Here every known use of a parameter is
replaced by one that keeps the rows: a product with a weight matrix by `WeightProduct`, which keeps its
input and gradient; an elementwise use by a *tap*, a leaf of its own for every row. What is computed from
parameters alone (W.T, a third of W, exp of a logarithm) becomes a *root* of its own, and its gradients are carried on
to the parameters afterwards. A use that no rule knows stays as it is, and autograd then returns a gradient for the root
itself, by which it is noticed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.overrides import TorchFunctionMode

from dudx.backend.active_modes import transforms_active
from dudx.backend.containers import flattened
from dudx.engines.taylor.jet import Jet

#: What to do for a torch function that has a root among its arguments: rule(recorder, function, args, kwargs).
#: A rule that does not know what to do returns NotImplemented.
RULES: dict[object, Callable[..., Any]] = {}


@dataclass(eq=False)
class Root:
    """A parameter, or a value computed from parameters alone; the recorded function is given `leaf` in its place."""

    number: int
    leaf: Tensor
    #: For a derived root: its value with the graph that leads to its sources.
    value: Tensor | None = None
    sources: tuple[Root, ...] = ()

    def parameters(self) -> set[Root]:
        """The parameters that the root is computed from."""
        return {self} if self.value is None else set().union(*(source.parameters() for source in self.sources))


@dataclass(eq=False)
class Tap:
    """A root repeated for each row of an elementwise use; `axis` is the axis of the samples."""

    root: Root
    leaf: Tensor
    axis: int


@dataclass(eq=False)
class Factors:
    """Gradients and inputs of a product with a weight, whose outer products are the weight's gradient."""

    root: Root
    gradient: Tensor
    entered: Tensor
    axis: int


@dataclass(eq=False)
class Record:
    """Results of one backward pass; products store factors while `keeping`, and ordinary gradients while `summing`."""

    taps: list[Tap] = field(default_factory=list)
    factors: list[Factors] = field(default_factory=list)
    keeping: bool = False
    summing: bool = False


class WeightProduct(Function):
    """x Wᵀ, or with `transposed` x W, for any number of leading axes; differentiable any number of times."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, recorder: RowRecorder, root: Root, axis: int, transposed: bool
    ) -> Any:
        ctx.save_for_backward(x, weight)
        ctx.recorder, ctx.root, ctx.axis, ctx.transposed = recorder, root, axis, transposed
        return torch.matmul(x, weight if transposed else weight.T)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (g,) = gradients
        x, weight = ctx.saved_tensors
        recorder: RowRecorder = ctx.recorder
        record, back, of_weight = recorder.record, None, None
        with recorder.suspended():
            gradient, entered = (x, g) if ctx.transposed else (g, x)
            if record.keeping:
                record.factors.append(Factors(ctx.root, gradient.detach(), entered.detach(), ctx.axis))
            if record.summing:
                of_weight = gradient.flatten(0, -2).T @ entered.flatten(0, -2)
            if ctx.needs_input_grad[0]:
                if torch.is_grad_enabled():
                    back = WeightProduct.apply(g, weight, recorder, ctx.root, ctx.axis, not ctx.transposed)
                else:
                    back = torch.matmul(g, weight.T if ctx.transposed else weight)
        return back, of_weight, None, None, None, None


class RowRecorder(TorchFunctionMode):
    """Replace the uses of some parameters, in a function of `samples` samples, by uses that keep the rows apart.

    Args:
        parameters: the parameters whose uses are replaced.
        samples: the number of samples; rows of (…, streams or stencil nodes × samples, …) belong to the samples
            in turn.
        constants: tensors known not to depend on the samples, such as a network's buffers.
    """

    def __init__(self, parameters: Sequence[Tensor], samples: int, constants: Sequence[Tensor] = ()):
        super().__init__()
        self.samples = samples
        self.record = Record()
        self.roots: list[Root] = []
        #: The rule, the root and the axis of samples of each use; equal traces assign rows to samples equally.
        self.trace: list[tuple[Any, ...]] = []
        self._by_id: dict[int, Root] = {}
        self._constants = {id(constant): constant for constant in constants}
        self._away = 0
        for parameter in parameters:
            self._add(parameter)

    def _add(self, leaf: Tensor, value: Tensor | None = None, sources: tuple[Root, ...] = ()) -> Root:
        root = Root(len(self.roots), leaf, value, sources)
        self.roots.append(root)
        self._by_id[id(leaf)] = root
        return root

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Suspend recording, for computations of the recorder itself."""
        self._away += 1
        try:
            yield
        finally:
            self._away -= 1

    # -- what rules need -----------------------------------------------------------------------------------------

    def root(self, value: object) -> Root | None:
        """The root of a tensor, or None."""
        return self._by_id.get(id(value))

    def sample_axis(self, shape: Sequence[int], excluded: Sequence[int] = ()) -> int | None:
        """The axis of the samples: one whose length is the number of samples, or else a multiple of it.

        The axis may be wrong where lengths agree by chance; the linearisation detects this by comparing sums.
        """
        # The last axis holds features, unless it is the only one.
        for axes in (range(len(shape) - 1), range(len(shape))):
            for fits in (lambda n: n == self.samples, lambda n: n and n % self.samples == 0):
                found = [axis for axis in axes if axis not in excluded and fits(shape[axis])]
                if found:
                    return found[0]
        return None

    def tapped(self, root: Root, shape: Sequence[int]) -> Tensor | None:
        """The root broadcast to a shape, with a copy per row; None if the shape has no axis of samples."""
        shift = len(shape) - root.leaf.ndim
        own = [shift + axis for axis, length in enumerate(root.leaf.shape) if length > 1]
        axis = self.sample_axis(shape, own)
        if axis is None:
            return None
        leaf = root.leaf.detach().expand(shape).requires_grad_(True)
        self.record.taps.append(Tap(root, leaf, axis))
        self._trace("tap", root, shape, axis)
        return leaf

    def _trace(self, kind: str, root: Root, shape: Sequence[int], axis: int) -> None:
        """Add a use to the trace, independent of the number of samples."""
        others = tuple(length for number, length in enumerate(shape) if number != axis)
        self.trace.append((kind, root.number, axis, shape[axis] // self.samples, others))

    def tapped_by_sample(self, root: Root) -> Tensor:
        """A copy of the root for each sample, (samples, *shape)."""
        leaf = root.leaf.detach().expand(self.samples, *root.leaf.shape).requires_grad_(True)
        self.record.taps.append(Tap(root, leaf, 0))
        self._trace("copies", root, leaf.shape, 0)
        return leaf

    def product(self, x: Tensor, root: Root) -> Tensor | None:
        """Compute x Wᵀ for a matrix; None if x has no axis of samples."""
        axis = self.sample_axis(x.shape[:-1])
        if axis is None:
            return None
        self._trace("product", root, x.shape, axis)
        out: Any = WeightProduct.apply(x, root.leaf, self, root, axis, False)
        return out

    def seen(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function from within a rule, with recording."""
        with self:
            return function(*args, **kwargs)

    # -- dispatch of torch functions ------------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = flattened((args, kwargs))
        # Jets and fields stand for tensors and implement torch functions themselves.
        stand_in = next((leaf for leaf in given if not isinstance(leaf, Tensor) and _overrides(leaf)), None)
        # Inside vmap rows are hidden, and without gradients there is nothing to record.
        if (
            self._away
            or not any(id(leaf) in self._by_id for leaf in given)
            or not torch.is_grad_enabled()
            or transforms_active()
        ):
            return func(*args, **kwargs) if stand_in is None else stand_in.__torch_function__(func, types, args, kwargs)
        rule = RULES.get(func)
        result = NotImplemented if rule is None else rule(self, func, args, kwargs)
        if result is not NotImplemented:
            return result
        if stand_in is not None:  # it calls torch functions on tensors, which are recorded
            return self.seen(stand_in.__torch_function__, func, types, spread(args), spread(kwargs))
        if self._from_parameters_alone(args, kwargs):
            return self._derived(func, args, kwargs)
        return func(*args, **kwargs)

    def _from_parameters_alone(self, args: Any, kwargs: Any) -> bool:
        """True if no argument depends on the samples; one that does has a multiple of their number of entries."""
        for leaf in flattened((args, kwargs)):
            known = not isinstance(leaf, Tensor) or id(leaf) in self._by_id or id(leaf) in self._constants
            if not known and (leaf.requires_grad or leaf.numel() % self.samples == 0):
                return False
        return True

    def _derived(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        sources = [self._by_id.get(id(leaf)) for leaf in flattened((args, kwargs))]
        found = tuple(dict.fromkeys(source for source in sources if source is not None))

        def rooted(value: Any) -> Any:
            if isinstance(value, tuple | list) and type(value) in (tuple, list):
                return type(value)(rooted(item) for item in value)
            if not isinstance(value, Tensor) or not value.requires_grad or id(value) in self._by_id:
                return value
            return self._add(value.detach().requires_grad_(True), value, found).leaf

        return rooted(result)


def _overrides(value: object) -> bool:
    return hasattr(type(value), "__torch_function__")


def spread(value: Any) -> Any:
    """The arguments with all streams of jets expanded to one row per point."""
    if isinstance(value, Jet):
        return Jet(value.layout, value.value, *(part.expand(len(part), *value.shape) for part in value.parts))
    if type(value) in (tuple, list):
        return type(value)(spread(item) for item in value)
    if isinstance(value, dict):
        return {key: spread(item) for key, item in value.items()}
    return value
