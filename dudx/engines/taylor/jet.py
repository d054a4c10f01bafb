"""Jets: a value with derivatives of it, which a network accepts in place of a tensor.

A jet holds the value u and streams. A stream is a derivative L u, where L may be any linear combination of derivatives:
the chain rule is linear in the highest of them, so a combination is propagated as one stream,

    L φ(u) = φ'(u) L u + φ''(u) Σ c_ij ∂_i u ∂_j u + …

The Laplacian in d variables takes d + 2 streams where the Hessian takes d². The module `symbols` computes which streams
a request takes. All streams are stacked on a leading axis: a linear layer is one matrix product for all of them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function

from dudx.backend.active_modes import modes_active
from dudx.backend.containers import flattened
from dudx.engines.taylor.rule_table import RULES, NotCoveredError
from dudx.engines.taylor.stream_layout import Layout
from dudx.engines.taylor.tensor_operators import TensorOperators
from dudx.errors import UnsupportedError


class NotFollowedError(UnsupportedError):
    """Jets cannot pass a function; the network as a whole may still be differentiated."""


class ScriptedError(NotFollowedError):
    """Jets cannot pass a TorchScript module, in which forward-mode tangents are silently lost too."""


#: A function of a base tensor that returns a view of it.
View = Callable[[Tensor], Tensor]


def _operator_rule(function: Any) -> Callable[..., Any] | None:
    """Return the rule of an operator by its name: torch.compile passes copies of operators written in Python.

    It turns `jet - tensor` into `Tensor.__rsub__(tensor, jet)`.
    """
    name = getattr(function, "__name__", "")
    return RULES[getattr(Tensor, name)] if name in ("__rsub__", "__rdiv__", "__rpow__", "__rmatmul__", "pow") else None


class Jet(TensorOperators):
    """A value of shape (…) and its stacked streams of shape (S, …). A stream may have size 1 on an axis to broadcast.

    The tensors of a jet are never changed in place; writing replaces them. A jet that is a view of another knows its
    base, so that writing to one of them updates both.
    """

    # numpy's scalars would otherwise convert a jet to an array in `scalar * jet`.
    __array_ufunc__ = None

    #: For a view: the jet it is a view of, and the function that returns this view of that jet's tensors.
    base: tuple[Jet, View] | None = None
    #: Views of this jet.
    views: list[weakref.ref[Jet]] | None = None

    def __init__(self, layout: Layout, value: Tensor, *parts: Tensor):
        self.layout, self.value = layout, value
        #: The streams in one or more stacks. Stacks that nobody reads are neither joined nor differentiated.
        self.parts: tuple[Tensor, ...] = parts
        self._version = 0

    @property
    def streams(self) -> Tensor:
        """All streams in one stack."""
        if len(self.parts) == 1:
            return self.parts[0]
        # Inside vmap, as for ensembles, torch compiles torch.cat for fixed sizes only.
        each = torch.compiler.is_compiling()
        stack = torch.stack([one for part in self.parts for one in part]) if each else torch.cat(self.parts)
        self.parts = (stack,)
        return stack

    def stream(self, number: int) -> Tensor:
        """Return one stream, expanded to the shape of the value."""
        for part in self.parts:
            if number < len(part):
                return part[number].expand(self.value.shape)
            number -= len(part)
        raise IndexError(f"A jet of {self.layout.streams} streams has no stream of this number.")

    def full(self) -> Tensor:
        """Return the streams, expanded to the shape of the value and converted to its dtype."""
        return self.streams.expand(self.layout.streams, *self.value.shape).to(self.value.dtype)

    # -- functions of torch --------------------------------------------------------------------------------------

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rule = _operator_rule(function) if torch.compiler.is_compiling() else None
        rule = RULES.get(function) if rule is None else rule
        if rule is not None:
            try:
                return rule(*args, **(kwargs or {}))
            except NotCoveredError:
                pass
            except TypeError as error:
                if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                    raise  # an error inside the rule, rather than arguments that the rule does not accept
        jet = next(leaf for leaf in flattened((args, kwargs or {})) if isinstance(leaf, Jet))
        return jet.layout.without_rule(function, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not hasattr(Tensor, name):
            raise AttributeError(f"'Tensor' object has no attribute {name!r}")
        function = getattr(Tensor, name)
        if not callable(function):
            return self._attribute(name)

        def method(*args: Any, **kwargs: Any) -> Any:
            # Through torch's dispatch if a mode is active, such as the one that isolates samples.
            if not torch.compiler.is_compiling() and modes_active():
                return handle_torch_function(function, (self,), self, *args, **kwargs)
            return Jet.__torch_function__(function, (), (self, *args), kwargs)

        return method

    def _attribute(self, name: str) -> Any:
        """Return an attribute of the value, such as `is_cuda`. Attributes that are tensors are functions with rules."""
        found = getattr(self.value, name)
        if not isinstance(found, Tensor) or name == "data":
            return found
        return Jet.__torch_function__(getattr(Tensor, name).__get__, (), (self,))

    # -- attributes that are read often, without torch's dispatch ------------------------------------------------

    @property
    def shape(self) -> torch.Size:
        return self.value.shape

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def dtype(self) -> torch.dtype:
        return self.value.dtype

    @property
    def device(self) -> torch.device:
        return self.value.device

    @property
    def requires_grad(self) -> bool:
        return self.value.requires_grad

    @property
    def is_nested(self) -> bool:
        return False

    def size(self, dim: int | None = None) -> Any:
        return self.value.size() if dim is None else self.value.size(dim)

    def dim(self) -> int:
        return self.value.dim()

    def numel(self) -> int:
        return self.value.numel()

    def is_inference(self) -> bool:
        return self.value.is_inference()

    def is_floating_point(self) -> bool:
        return self.value.is_floating_point()

    def __len__(self) -> int:
        return len(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)  # a branch is constant between jumps

    def __float__(self) -> float:
        raise UnsupportedError(
            "The network converts a tensor to a Python number, by float(x) or x.item(), which would silently lose its "
            "derivatives; keep it a tensor, or use differences: dudx.FD()."
        )

    __int__ = __complex__ = __index__ = __float__

    def __iter__(self) -> Any:
        return iter(self.unbind(0))

    # -- writing, and views --------------------------------------------------------------------------------------

    def become(self, content: Any) -> Jet:
        """Replace the content, as an operation in place does on a tensor; all views of the same memory follow."""
        content = content if isinstance(content, Jet) else constant(self, content)
        if self.base is not None or self.views is not None or content.shape != self.shape:
            return self._write(content)
        self._put(content)
        return self

    def viewed_by(self, view: Jet, function: View) -> None:
        """Register another jet as the view of this jet that the function returns."""
        view.base = (self, function)
        self.views = [*(known for known in self.views or () if known() is not None), weakref.ref(view)]

    def with_part(self, part: View, content: Jet) -> Jet:
        """Return a new jet like this one with other content in the part that the function returns."""

        def written(whole: Tensor, new: Tensor) -> Tensor:
            whole = whole.clone(memory_format=torch.contiguous_format)
            part(whole).copy_(new)
            return whole

        streams = torch.func.vmap(written)(self.full(), content.full())
        return Jet(self.layout, written(self.value, content.value), streams)

    def _put(self, content: Jet) -> None:
        self.value, self.parts, self._version = content.value, content.parts, self._version + 1

    def _write(self, content: Jet) -> Jet:
        if torch.broadcast_shapes(content.shape, self.shape) != self.shape:
            raise RuntimeError(
                f"output with shape {list(self.shape)} doesn't match the broadcast shape "
                f"{list(torch.broadcast_shapes(content.shape, self.shape))}"
            )
        if content.shape != self.shape or content.dtype != self.dtype:
            content = self.with_part(lambda whole: whole, content)
        root = self
        root._put(content)
        while root.base is not None:
            base, view = root.base
            base._put(base.with_part(view, root))
            root = base
        root._refresh_views()
        return self

    def _refresh_views(self) -> None:
        for known in self.views or ():
            view = known()
            if view is not None and view.base is not None:
                function = view.base[1]
                view._put(Jet(self.layout, function(self.value), torch.func.vmap(function)(self.full())))
                view._refresh_views()


def constant(like: Jet, value: Any) -> Jet:
    """Return a number or tensor as a jet whose derivatives are zero."""
    # A tensor keeps its dtype, which torch's type promotion takes into account; a number has none.
    dtype = value.dtype if isinstance(value, Tensor) else like.dtype
    tensor = torch.as_tensor(value, dtype=dtype, device=like.device)
    return Jet(like.layout, tensor, tensor.new_zeros(()).expand(like.layout.streams, *tensor.shape))
