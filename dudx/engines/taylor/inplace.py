"""Writing into jets, their parts and views, and into plain tensors that become jets by it.

Plain tensors that a network writes jets into are replaced by shadows, jets that functions receive in their place.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dudx.backend.containers import flattened, mapped
from dudx.engines.taylor.jet import Jet, NotFollowedError, View, constant
from dudx.engines.taylor.rule_table import taylor_rule


class PlainTensorWrittenError(NotFollowedError):
    """A jet is written into a plain tensor while plain tensors have no shadows."""


def noted(result: Jet, jet: Jet, view: View) -> Jet:
    """Return the result of a function of one jet, registered as a view if it shares the memory of the jet."""
    if _share_memory(result.value, jet.value):
        jet.viewed_by(result, view)
    return result


def _share_memory(a: Tensor, b: Tensor) -> bool:
    if torch.compiler.is_compiling():
        return False
    if a is b or a._is_view():
        try:
            return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
        except (RuntimeError, NotImplementedError):  # tensors inside transforms have no memory of their own
            return True
    return a.is_inference() and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


class Shadows(TorchFunctionMode):
    """Mode in which a plain tensor that a jet was written into has a jet, its shadow, that functions receive instead.

    A tensor that shares memory with a tensor that has a shadow is treated as a view of this shadow.
    """

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, tuple[Tensor, Jet]] = {}
        self._token: Any = None

    def __enter__(self) -> Shadows:
        self._token = _shadows.set(self)
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        _shadows.reset(self._token)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = (tuple(args), dict(kwargs or {}))
        if self.known:
            given = mapped(given, self.of)
        if any(isinstance(leaf, Jet) for leaf in flattened(given)):
            return Jet.__torch_function__(function, (), *given)
        return function(*given[0], **given[1])

    def of(self, value: Any) -> Any:
        """Return the shadow of a tensor if it has one, otherwise the value itself."""
        if not isinstance(value, Tensor) or type(value) is Jet:
            return value
        found = self.known.get(id(_root(value)))
        return value if found is None else self._view(found[1], value)

    def _view(self, root: Jet, tensor: Tensor) -> Jet:
        if tensor._base is None:
            return root
        size, stride, offset = tensor.size(), tensor.stride(), tensor.storage_offset()

        def part(whole: Tensor) -> Tensor:
            return torch.as_strided(whole, size, stride, offset)

        view = Jet(root.layout, part(root.value), torch.func.vmap(part)(root.full().contiguous()))
        root.viewed_by(view, part)
        return view

    def shadow(self, tensor: Tensor, like: Jet) -> Jet:
        """Return the shadow of a plain tensor that is about to be written to; create it if there is none."""
        root = _root(tensor)
        if not root.is_contiguous() or (root.requires_grad and root.is_leaf):
            raise NotFollowedError("Taylor cannot follow a network that writes into one of its parameters.")
        if id(root) not in self.known:
            self.known[id(root)] = (root, constant(like, root.clone()))
        return self._view(self.known[id(root)][1], tensor)


_shadows: ContextVar[Shadows | None] = ContextVar("dudx_shadows", default=None)


def _root(tensor: Tensor) -> Tensor:
    return tensor if tensor._base is None else tensor._base


def writable(target: Any, like: Jet) -> Jet:
    """Return the jet to write to: the target itself, or its shadow if it is a plain tensor."""
    if isinstance(target, Jet):
        return target
    shadows = _shadows.get()
    if shadows is None:
        raise PlainTensorWrittenError("Taylor must run a network again that writes into tensors it has created.")
    return shadows.shadow(target, like)


def shadow_of(value: Any) -> Any:
    """Return the shadow of a tensor if it has one, otherwise the value itself."""
    shadows = _shadows.get()
    return value if shadows is None else shadows.of(value)


def write(target: Any, content: Any, like: Jet) -> Jet:
    """Write into a jet, or into the shadow of a plain tensor and into the tensor itself."""
    jet = writable(target, like).become(content)
    _write_value(target, jet)
    return jet


def _write_value(target: Any, jet: Jet) -> None:
    """Write the value into a plain tensor, such as a buffer, that may be read after the network has run."""
    if isinstance(target, Tensor) and not target.requires_grad:
        with torch.no_grad():
            target.copy_(jet.value)


@taylor_rule(Tensor.__setitem__)
def assign(target: Any, key: Any, value: Any) -> None:
    """Run target[key] = value. Of jets in the key only the values matter."""
    like = next(leaf for leaf in flattened((target, value, key)) if isinstance(leaf, Jet))
    key = mapped(key, lambda leaf: leaf.value if isinstance(leaf, Jet) else leaf)
    if not isinstance(target, Jet) and not isinstance(value, Jet):
        target[key] = value
        return
    jet = writable(target, like)
    content = value if isinstance(value, Jet) else constant(jet, value)

    def written(whole: Tensor, new: Tensor) -> Tensor:
        whole = whole.clone()
        whole[key] = new.to(whole.dtype)
        return whole

    streams = torch.func.vmap(written)(jet.full(), content.full())
    jet.become(Jet(jet.layout, written(jet.value, content.value), streams))
    _write_value(target, jet)
