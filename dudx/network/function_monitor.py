"""Monitor the torch functions that a network calls, to find hazards for derivatives without an extra pass."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dudx.backend.active_modes import saved_tensors_hooked, transforms_active
from dudx.backend.containers import flattened
from dudx.backend.differentiable_kernels import called, is_jet
from dudx.errors import UnsupportedError
from dudx.network.model_checks import Model
from dudx.network.modules import modules_of, owner_of

#: Piecewise linear layers, and their functions.
_KINKED_LAYERS = (
    nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.ReLU6, nn.Hardtanh, nn.Hardsigmoid, nn.Hardshrink, nn.Softshrink,
    nn.Threshold,
)  # fmt: skip
_KINKED = {
    "relu", "relu_", "leaky_relu", "leaky_relu_", "prelu", "rrelu", "relu6", "hardtanh", "hardtanh_", "hardsigmoid",
    "hardshrink", "softshrink", "threshold", "clamp", "clamp_min", "abs",
}  # fmt: skip
#: Functions that preserve piecewise linearity; products do if one factor is the same for every row.
_STRAIGHT = {
    "linear", "matmul", "mm", "addmm", "bmm", "einsum", "add", "sub", "__rsub__", "neg", "mul", "div", "cat", "stack",
    "split", "chunk", "narrow", "unbind", "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze",
    "transpose", "permute", "expand", "expand_as", "clone", "contiguous", "to", "float", "double", "sum", "mean",
    "__getitem__", "dropout", "conv1d", "conv2d", "ones_like", "zeros_like", "requires_grad_", "detach", "__get__",
    "split_with_sizes", "grad", "view_as", "is_floating_point", "is_inference", "size", "dim", "__len__",
    "where", "eq", "ne", "lt", "le", "gt", "ge", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__",
}  # fmt: skip
#: Functions by which values or memory leave torch, or that change gradients.
_LEAVING = {
    Tensor.numpy, Tensor.__array__, Tensor.data.__set__, Tensor.__dlpack__, Tensor.untyped_storage,  # type: ignore[attr-defined]
    Tensor.storage, Tensor.data_ptr, Tensor.set_, Tensor.register_hook, Tensor.grad_fn.__get__,  # type: ignore[attr-defined]
}  # fmt: skip
#: Functions that turn tensors into constants, which is a hazard unless the tensor is a parameter.
_CONSTANTS = {
    Tensor.item, Tensor.tolist, Tensor.__float__, Tensor.__int__, Tensor.__complex__, Tensor.data.__get__,  # type: ignore[attr-defined]
    Tensor.__format__, Tensor.__repr__, Tensor.__reduce_ex__, Tensor.__deepcopy__, Tensor.new_tensor, torch.tensor,
    torch.asarray, torch.as_tensor, torch.save,
}  # fmt: skip
#: Prefixes of the names of functions that torch cannot differentiate.
_KNOWN_WITHOUT = tuple(
    f"special_{name}"
    for name in (
        "bessel", "modified_bessel", "scaled_modified_bessel", "spherical_bessel", "airy", "chebyshev", "hermite",
        "laguerre", "legendre", "shifted",
    )
)  # fmt: skip
#: Functions that return a tensor's memory without its graph.
_ASIDE = {Tensor.detach, torch.detach, Tensor.data.__get__}  # type: ignore[attr-defined]

_WITHOUT_GRAPH = (
    "Taylor would lose gradients here: a part of this network runs where nothing is recorded (torch.no_grad, a "
    "torch.autograd.Function, a reentrant checkpoint). Use dudx.AD(), and checkpoint with use_reentrant=False."
)

#: The active monitor, to which engines report.
ACTIVE_MONITOR: ContextVar[FunctionMonitor | None] = ContextVar("dudx_looking", default=None)


class FunctionMonitor(TorchFunctionMode):
    """Function mode that records hazards for derivatives while a network runs.

    Args:
        rows: number of points; tensors with this number of rows, or a multiple, are taken to depend on them.
        known: constants with rows, such as the context or the data of a network.
    """

    def __init__(self, rows: int, known: Iterable[Tensor] = ()):
        super().__init__()
        self.rows, self.recording = rows, torch.is_grad_enabled()
        #: The first function that has a kink.
        self.kink: str | None = None
        #: True if all functions called so far are piecewise linear.
        self.piecewise_linear = True
        #: True if a derivative may differ from the change of the output, and must be cross-checked.
        self.doubtful = False
        #: For each output, the axes (d,) along which its first derivative is zero at every point, if reported.
        self.zero_slopes: dict[int, Tensor] = {}
        #: Detached tensors, which share memory with others.
        self._aside: list[Any] = []
        #: Results without gradient, by id; kept alive so that ids are not reused.
        self._seen: dict[int, Any] = {id(tensor): tensor for tensor in known}

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Let engines report to the monitor inside the block; as a mode it is entered while the network runs."""
        token = ACTIVE_MONITOR.set(self)
        try:
            yield
        finally:
            ACTIVE_MONITOR.reset(token)

    def note_slope(self, output: int, gradient: Tensor) -> None:
        """Record the first derivatives (…, d) of an output at some points."""
        zero = (gradient.detach() == 0).reshape(-1, gradient.shape[-1]).all(0)
        self.zero_slopes[output] = self.zero_slopes[output] & zero if output in self.zero_slopes else zero

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._note(func, args)
        made = called(func, args, kwargs or {})
        tensors = (leaf for leaf in flattened(made) if isinstance(leaf, Tensor))
        self._seen.update((id(tensor), tensor) for tensor in tensors if not tensor.requires_grad)
        if func in _ASIDE:
            self._aside.append(made)
        elif isinstance(made, Tensor) and _loses_its_gradient(func, args, made):
            self.doubtful = True
        return made

    def _note(self, func: Any, args: Any) -> None:
        own = [value for value in args if isinstance(value, Tensor) or is_jet(value)]
        self.doubtful = self.doubtful or func in _LEAVING or (func in _CONSTANTS and any(map(self._may_depend, own)))
        self.doubtful = self.doubtful or saved_tensors_hooked()
        if self.recording and not torch.is_grad_enabled() and any(map(is_jet, own)):
            raise UnsupportedError(_WITHOUT_GRAPH)
        moving = [value for value in own if value.ndim and len(value) % self.rows == 0]
        self.doubtful = self.doubtful or any(map(self._comes_from_elsewhere, moving))
        name = getattr(func, "__name__", "")
        if name.endswith("_") and not name.endswith("__") and own and self._writes_unseen(own[0]):
            self.doubtful = True
        if name in _KINKED and moving:
            self.kink = self.kink or name
        elif moving and (name not in _STRAIGHT or (name in ("mul", "div", "matmul") and len(moving) > 1)):
            self.piecewise_linear = False

    def _may_depend(self, value: Any) -> bool:
        """Return True if a value may depend on the points, that is, for all tensors but parameters."""
        if is_jet(value) or (value.ndim and len(value) % self.rows == 0):
            return True
        return not (value.is_leaf and value.requires_grad)

    def _comes_from_elsewhere(self, value: Any) -> bool:
        """Return True for rows without gradient that no recorded function returned, such as those of NumPy arrays."""
        if is_jet(value) or value.requires_grad or transforms_active() or not value.is_floating_point():
            return False
        return id(value) not in self._seen

    def _writes_unseen(self, written: Any) -> bool:
        """Return True if autograd does not record a write into a tensor."""
        unseen = written.requires_grad and not torch.is_grad_enabled()
        return unseen or any(written is tensor for tensor in self._aside)


def _loses_its_gradient(func: Any, args: Any, made: Tensor) -> bool:
    """Return True if torch has no derivative of a function, such as Bessel's, and treats its result as constant."""
    name = getattr(func, "__name__", "")
    if transforms_active():  # inside of which `requires_grad` is not meaningful
        return name.startswith(_KNOWN_WITHOUT)
    if made.requires_grad or not made.is_floating_point() or not torch.is_grad_enabled():
        return False
    # Operators such as "permute.default" come from inside torch, where no graph is recorded.
    constant = name.endswith("_like") or name.startswith("new_") or name == "__get__" or "." in name
    return not constant and any(isinstance(value, Tensor) and value.requires_grad for value in args)


def mark_doubtful() -> None:
    """Report a hand-written backward pass to the active monitor."""
    observed = ACTIVE_MONITOR.get()
    if observed is not None:
        observed.doubtful = True


def describe_kink(model: Model, function: str) -> str:
    """Describe where a network has a kink: the name of its layer, or the function in its own code."""
    owner = owner_of(model)
    named = owner.named_modules() if isinstance(owner, nn.Module) else (("", module) for module in modules_of(model))
    for name, module in named:
        if isinstance(module, _KINKED_LAYERS):
            return f"layer {name!r} ({type(module).__name__})" if name else f"layer {type(module).__name__}"
    return f"{function} in its own code"
