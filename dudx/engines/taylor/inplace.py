"""Writing into jets: in place, through views, into parts; and into tensors that were none before.

A jet's tensors are never changed: what is written to gets others. So a view knows what it is a view of and how it is
made of that, and where one of the two is written to, all that share its memory are made anew.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dudx.engines.taylor.jet import Jet, NotFollowedError
from dudx.engines.taylor.rule_table import taylor_rule
from dudx.engines.taylor.torch_derivatives import flattened, rebuilt

View = Callable[[Tensor], Tensor]


class PlainTensorWrittenError(NotFollowedError):
    """A jet is to be written into a plain tensor, of which others would not know that it has derivatives now."""


def constant(layout_of: Jet, value: Any) -> Jet:
    """A number or tensor as a jet whose derivatives are all zero."""
    # A tensor keeps its precision, which torch would take into account; a number has none.
    dtype = value.dtype if isinstance(value, Tensor) else layout_of.dtype
    tensor = torch.as_tensor(value, dtype=dtype, device=layout_of.device)
    return Jet(layout_of.layout, tensor, tensor.new_zeros(()).expand(layout_of.layout.streams, *tensor.shape))


# -- views -----------------------------------------------------------------------------------------------------------


def noted(result: Jet, jet: Jet, view: View) -> Jet:
    """The result of a function of one jet, which knows from now on if it shares the memory of that."""
    if _share_memory(result.value, jet.value):
        result.origin = (jet, view)
        jet.views = [*(known for known in jet.views or () if known() is not None), weakref.ref(result)]
    return result


def _share_memory(a: Tensor, b: Tensor) -> bool:
    if torch.compiler.is_compiling():
        return False
    if a is b or a._is_view():
        try:
            return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
        except (RuntimeError, NotImplementedError):  # inside of transforms tensors have no memory to look at
            return True
    return a.is_inference() and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def rewritten(jet: Jet, content: Any) -> Jet:
    """The same jet with another content, which all who share its memory see as well."""
    content = content if isinstance(content, Jet) else constant(jet, content)
    if torch.broadcast_shapes(content.shape, jet.shape) != jet.shape:
        raise RuntimeError(
            f"output with shape {list(jet.shape)} doesn't match the broadcast shape "
            f"{list(torch.broadcast_shapes(content.shape, jet.shape))}"
        )
    if content.shape != jet.shape or content.dtype != jet.dtype:
        content = _part_written(jet, lambda whole: whole, content)
    root = jet
    _put(root, content)
    while root.origin is not None:
        base, view = root.origin
        _put(base, _part_written(base, view, root))
        root = base
    _refresh(root)
    return jet


def _put(jet: Jet, content: Jet) -> None:
    jet.value, jet.parts, jet._version = content.value, content.parts, jet._version + 1


def _part_written(jet: Jet, part: View, content: Any) -> Jet:
    """The jet with a part of it replaced, as a new one."""
    content = content if isinstance(content, Jet) else constant(jet, content)

    def written(whole: Tensor, new: Tensor) -> Tensor:
        whole = whole.clone(memory_format=torch.contiguous_format)
        part(whole).copy_(new)
        return whole

    return Jet(jet.layout, written(jet.value, content.value), torch.func.vmap(written)(jet.full(), content.full()))


def _refresh(root: Jet) -> None:
    for known in root.views or ():
        view = known()
        if view is not None and view.origin is not None:
            make = view.origin[1]
            _put(view, Jet(root.layout, make(root.value), torch.func.vmap(make)(root.full())))
            _refresh(view)


# -- plain tensors that are written to -------------------------------------------------------------------------------


class Shadows(TorchFunctionMode):
    """While it lasts, a plain tensor into which a jet is written has a jet for a shadow, which functions get instead.

    A tensor that shares memory with one that has a shadow is a view of this shadow.
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
            given = rebuilt(given, iter([self.of(leaf) for leaf in flattened(given)]))
        if any(isinstance(leaf, Jet) for leaf in flattened(given)):
            return Jet.__torch_function__(function, (), *given)
        return function(*given[0], **given[1])

    def of(self, value: Any) -> Any:
        """A tensor's shadow if it has one, else what was given."""
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

        made = Jet(root.layout, part(root.value), torch.func.vmap(part)(root.full().contiguous()))
        made.origin = (root, part)
        root.views = [*(known for known in root.views or () if known() is not None), weakref.ref(made)]
        return made

    def shadow(self, tensor: Tensor, like: Jet) -> Jet:
        """The jet in place of a plain tensor that is about to be written to."""
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
    """What is written to, as a jet."""
    if isinstance(target, Jet):
        return target
    shadows = _shadows.get()
    if shadows is None:
        raise PlainTensorWrittenError("Taylor has to run a network again that writes into tensors of its own.")
    return shadows.shadow(target, like)


def shadow_of(value: Any) -> Any:
    """A tensor's shadow if it has one, else what was given."""
    shadows = _shadows.get()
    return value if shadows is None else shadows.of(value)


def write(target: Any, content: Any, like: Jet) -> Jet:
    """Write into a jet, or into a plain tensor while its shadow takes the place of it."""
    jet = rewritten(writable(target, like), content)
    _seen_by_others(target, jet)
    return jet


def _seen_by_others(target: Any, jet: Jet) -> None:
    """What is written into a plain tensor is there, for instance in a buffer, also after the network has run."""
    if isinstance(target, Tensor) and not target.requires_grad:
        with torch.no_grad():
            target.copy_(jet.value)


@taylor_rule(Tensor.__setitem__)
def assign(target: Any, key: Any, value: Any) -> None:
    """What target[key] = value does; of jets in the key only the values matter, which move in jumps."""
    like = next(leaf for leaf in flattened((target, value, key)) if isinstance(leaf, Jet))
    key = rebuilt(key, iter([k.value if isinstance(k, Jet) else k for k in flattened(key)]))
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
    rewritten(jet, Jet(jet.layout, written(jet.value, content.value), streams))
    _seen_by_others(target, jet)


Jet.rewritten = rewritten
