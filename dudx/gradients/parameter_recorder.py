"""While a function of samples is computed, note where parameters enter; its backward pass then tells samples apart.

A sample's gradient of a parameter is lost where autograd sums over rows. Here every known use of a parameter is
replaced by one that keeps the rows: a product with a weight matrix by `WeightProduct`, which notes what went in and
which gradient came back; an elementwise use by a *tap*, a leaf of its own for every row. What is computed from
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
    """A parameter, or what is computed from parameters alone; `leaf` is what the function under record gets to see."""

    number: int
    leaf: Tensor
    #: For a derived root: its value with the graph that leads to its sources.
    value: Tensor | None = None
    sources: tuple[Root, ...] = ()

    def parameters(self) -> set[Root]:
        """The parameters it is made of."""
        return {self} if self.value is None else set().union(*(source.parameters() for source in self.sources))


@dataclass(eq=False)
class Tap:
    """A root repeated for every row of an elementwise use; `axis` is that of the samples."""

    root: Root
    leaf: Tensor
    axis: int


@dataclass(eq=False)
class Factors:
    """What a product with a weight left behind: gradients and inputs whose outer products are the weight's gradient."""

    root: Root
    gradient: Tensor
    entered: Tensor
    axis: int


@dataclass(eq=False)
class Record:
    """What one backward pass finds; `keeping` says whether products keep factors, or weights get ordinary gradients."""

    taps: list[Tap] = field(default_factory=list)
    factors: list[Factors] = field(default_factory=list)
    keeping: bool = False
    summing: bool = False


class WeightProduct(Function):
    """x Wᵀ, or with `transposed` x W, for any number of leading axes; differentiable as often as one likes."""

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
        with recorder.looking_away():
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
    """Replaces the uses of some parameters, in a function of `samples` samples, by uses that keep the rows apart.

    Args:
        parameters: those to look for.
        samples: how many samples there are; rows of (…, streams or stencil nodes × samples, …) belong to the samples
            in turn.
        constants: tensors known not to depend on the samples, such as a network's buffers.
    """

    def __init__(self, parameters: Sequence[Tensor], samples: int, constants: Sequence[Tensor] = ()):
        super().__init__()
        self.samples = samples
        self.record = Record()
        self.roots: list[Root] = []
        #: Which rule was applied to which root, and where it found the samples: two equal traces are attributed alike.
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
    def looking_away(self) -> Iterator[None]:
        """For what is computed on behalf of the recorder itself."""
        self._away += 1
        try:
            yield
        finally:
            self._away -= 1

    # -- what rules need -----------------------------------------------------------------------------------------

    def root(self, value: object) -> Root | None:
        """The root that a tensor is, if it is one."""
        return self._by_id.get(id(value))

    def sample_axis(self, shape: Sequence[int], excluded: Sequence[int] = ()) -> int | None:
        """The axis along which samples lie: as long as there are samples, or else a multiple of that.

        A guess that may be wrong where lengths happen to agree; whoever uses it compares sums afterwards.
        """
        # The last axis is that of features, unless there is no other.
        for axes in (range(len(shape) - 1), range(len(shape))):
            for fits in (lambda n: n == self.samples, lambda n: n and n % self.samples == 0):
                found = [axis for axis in axes if axis not in excluded and fits(shape[axis])]
                if found:
                    return found[0]
        return None

    def tapped(self, root: Root, shape: Sequence[int]) -> Tensor | None:
        """The root broadcast to a shape with rows of its own; None where no samples are found in it."""
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
        """Note a use in a way that is the same for any number of samples."""
        others = tuple(length for number, length in enumerate(shape) if number != axis)
        self.trace.append((kind, root.number, axis, shape[axis] // self.samples, others))

    def tapped_by_sample(self, root: Root) -> Tensor:
        """A copy of the root for each sample, (samples, *shape)."""
        leaf = root.leaf.detach().expand(self.samples, *root.leaf.shape).requires_grad_(True)
        self.record.taps.append(Tap(root, leaf, 0))
        self._trace("copies", root, leaf.shape, 0)
        return leaf

    def product(self, x: Tensor, root: Root) -> Tensor | None:
        """X Wᵀ for a matrix; None where no samples are found in x."""
        axis = self.sample_axis(x.shape[:-1])
        if axis is None:
            return None
        self._trace("product", root, x.shape, axis)
        out: Any = WeightProduct.apply(x, root.leaf, self, root, axis, False)
        return out

    def seen(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A function called so that this recorder looks on, from within a rule."""
        with self:
            return function(*args, **kwargs)

    # -- the look at every torch function ------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = flattened((args, kwargs))
        # Jets and fields stand for tensors, and know themselves what a torch function does to them.
        stand_in = next((leaf for leaf in given if not isinstance(leaf, Tensor) and _overrides(leaf)), None)
        # Inside of vmap rows are hidden, and without gradients there is nothing to record.
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
        if stand_in is not None:  # it calls torch functions on tensors: look on, with jets as long as their values
            return self.seen(stand_in.__torch_function__, func, types, spread(args), spread(kwargs))
        if self._from_parameters_alone(args, kwargs):
            return self._derived(func, args, kwargs)
        return func(*args, **kwargs)

    def _from_parameters_alone(self, args: Any, kwargs: Any) -> bool:
        """Whether nothing among the arguments depends on the samples: what does is a multiple of them in size."""
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
    """The arguments with jets whose streams, even where they are the same at all points, have a row for each."""
    if isinstance(value, Jet):
        return Jet(value.layout, value.value, *(part.expand(len(part), *value.shape) for part in value.parts))
    if type(value) in (tuple, list):
        return type(value)(spread(item) for item in value)
    if isinstance(value, dict):
        return {key: spread(item) for key, item in value.items()}
    return value
