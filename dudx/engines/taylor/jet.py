"""Jets: a value together with derivatives of it, which a network takes for a tensor.

A jet carries the value u and streams: derivatives L u, where L may be any linear combination of derivatives, collapsed
into a single stream because the chain rule is linear in the highest of them,

    L φ(u) = φ'(u) L u + φ''(u) Σ c_ij ∂_i u ∂_j u + …

so that the Laplacian in d variables takes d + 2 streams where the Hessian would take d². Which derivatives a request
takes, `symbols` knows. All streams but the value are stacked on a leading axis: a linear layer is one product of
matrices for all of them.
"""

from __future__ import annotations

import numbers
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.overrides import handle_torch_function

from dudx.backend.active_modes import modes_active
from dudx.engines.taylor.stream_layout import Layout
from dudx.errors import UnsupportedError

#: Rules by torch function: what to do when an argument is a jet.
RULES: dict[object, Callable[..., Any]] = {}


class NotCoveredError(Exception):
    """A rule does not know this variant of its function, which then takes the general way."""


class NotFollowedError(UnsupportedError):
    """Jets do not get through here; the network as a whole may still be differentiated."""


def _operator_rule(function: Any) -> Callable[..., Any] | None:
    """The rule of an operator written in Python: torch.compile hands out copies of these, to be told by their names.

    Of `jet - tensor` it makes Tensor.__rsub__(tensor, jet).
    """
    name = getattr(function, "__name__", "")
    return RULES[getattr(Tensor, name)] if name in ("__rsub__", "__rdiv__", "__rpow__", "__rmatmul__", "pow") else None


def _called(function: Any, jet: Jet, *others: Any) -> Any:
    """An operator, through torch's own dispatch while a mode looks on: it sees one call, not what the rule does."""
    if not torch.compiler.is_compiling() and modes_active():
        return handle_torch_function(function, (jet,), jet, *others)
    return RULES[function](jet, *others)


class Jet:
    """A value (shape …) and its stacked streams (S, …), where a stream may have size 1 along an axis to broadcast."""

    # Above Tensor, so that tensor * jet comes here; numpy's scalars would try to make an array of us.
    __array_ufunc__ = None

    #: What is done where there is no rule, and where what is written to shares its memory: rooms above this one.
    otherwise: ClassVar[Callable[[Any, Any, Any], Any]]
    rewritten: ClassVar[Callable[[Jet, Jet], Jet]]

    #: The jet that this one is a view of and how it is made of that one's tensors; and the views of this one.
    origin: tuple[Jet, Callable[[Tensor], Tensor]] | None = None
    views: list[weakref.ref[Jet]] | None = None

    def __init__(self, layout: Layout, value: Tensor, *parts: Tensor):
        self.layout, self.value = layout, value
        #: The streams in one stack or several: what nobody asks for is then not put together, nor differentiated.
        self.parts: tuple[Tensor, ...] = parts
        self._version = 0

    def _become(self, other: Jet) -> Jet:
        """What a tensor does in an operation in place: the same object with another content."""
        if self.origin is not None or self.views is not None or type(other) is not Jet or other.shape != self.shape:
            return Jet.rewritten(self, other)
        self.value, self.parts, self._version = other.value, other.parts, self._version + 1
        return self

    @property
    def streams(self) -> Tensor:
        """All streams in one stack."""
        if len(self.parts) == 1:
            return self.parts[0]
        # Inside of vmap, where ensembles have it, torch compiles torch.cat for the sizes at hand.
        each = torch.compiler.is_compiling()
        stack = torch.stack([one for part in self.parts for one in part]) if each else torch.cat(self.parts)
        self.parts = (stack,)
        return stack

    def stream(self, number: int) -> Tensor:
        """One of the streams, of the value's shape."""
        for part in self.parts:
            if number < len(part):
                return part[number].expand(self.value.shape)
            number -= len(part)
        raise IndexError(f"A jet of {self.layout.streams} streams has none of this number.")

    def full(self) -> Tensor:
        """The streams with every axis as long as the value's, and of its type."""
        return self.streams.expand(self.layout.streams, *self.value.shape).to(self.value.dtype)

    # Rules are found by function; methods and operators are looked up as functions of Tensor.

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
                    raise  # a mistake in the rule itself, rather than arguments that it does not take
        return Jet.otherwise(function, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not hasattr(Tensor, name):
            raise AttributeError(f"'Tensor' object has no attribute {name!r}")
        function = getattr(Tensor, name)
        if not callable(function):
            return self._attribute(name)

        def method(*args: Any, **kwargs: Any) -> Any:
            # Through torch's own dispatch, so that a mode such as the one that isolates samples sees the call.
            if not torch.compiler.is_compiling() and modes_active():
                return handle_torch_function(function, (self,), self, *args, **kwargs)
            return Jet.__torch_function__(function, (), (self, *args), kwargs)

        return method

    def _attribute(self, name: str) -> Any:
        """What is known of the value, such as `is_cuda`; a tensor among it has derivatives of its own."""
        found = getattr(self.value, name)
        if not isinstance(found, Tensor) or name == "data":
            return found
        return Jet.__torch_function__(getattr(Tensor, name).__get__, (), (self,))

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
        return bool(self.value)  # which way a network branches moves in jumps

    def __float__(self) -> float:
        raise UnsupportedError(
            "The network makes a Python number of a tensor, by float(x) or x.item(), and its derivatives would be "
            "lost without a word; keep it a tensor, or use differences: dudx.FD()."
        )

    __int__ = __complex__ = __index__ = __float__

    def __iter__(self) -> Any:
        return iter(self.unbind(0))

    def __add__(self, other: Any) -> Any:
        return _called(torch.add, self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _called(torch.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return _called(Tensor.__rsub__, self, other)

    def __neg__(self) -> Any:
        return _called(torch.neg, self)

    def __pos__(self) -> Jet:
        return self

    def __mul__(self, other: Any) -> Any:
        return _called(torch.mul, self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return _called(torch.div, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _called(Tensor.__rtruediv__, self, other)

    def __pow__(self, other: Any) -> Any:
        return _called(torch.pow, self, other)

    def __rpow__(self, other: Any) -> Any:
        return _called(Tensor.__rpow__, self, other)

    def __mod__(self, other: Any) -> Any:
        return _called(torch.remainder, self, other)

    def __rmod__(self, other: Any) -> Any:
        return _called(Tensor.__rmod__, self, other)

    def __floordiv__(self, other: Any) -> Any:
        return _called(torch.floor_divide, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _called(Tensor.__rfloordiv__, self, other)

    def __matmul__(self, other: Any) -> Any:
        return _called(torch.matmul, self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _called(Tensor.__rmatmul__, self, other)

    def __abs__(self) -> Any:
        return _called(torch.abs, self)

    def __iadd__(self, other: Any) -> Jet:
        return self._become(self + other)

    def __isub__(self, other: Any) -> Jet:
        return self._become(self - other)

    def __imul__(self, other: Any) -> Jet:
        return self._become(self * other)

    def __itruediv__(self, other: Any) -> Jet:
        return self._become(self / other)

    def __ipow__(self, other: Any) -> Jet:
        return self._become(self**other)

    def __imod__(self, other: Any) -> Jet:
        return self._become(self % other)

    def __ifloordiv__(self, other: Any) -> Jet:
        return self._become(self // other)

    def __getitem__(self, key: Any) -> Any:
        return RULES[Tensor.__getitem__](self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _called(Tensor.__setitem__, self, key, value)

    def __gt__(self, other: Any) -> Any:
        return _called(torch.gt, self, other)

    def __ge__(self, other: Any) -> Any:
        return _called(torch.ge, self, other)

    def __lt__(self, other: Any) -> Any:
        return _called(torch.lt, self, other)

    def __le__(self, other: Any) -> Any:
        return _called(torch.le, self, other)

    def __eq__(self, other: object) -> Any:
        return _called(torch.eq, self, other) if isinstance(other, _COMPARED) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return _called(torch.ne, self, other) if isinstance(other, _COMPARED) else NotImplemented

    __hash__ = object.__hash__


#: What values are compared with; for anything else `==` asks whether it is the same object.
_COMPARED = (Jet, Tensor, numbers.Number)
