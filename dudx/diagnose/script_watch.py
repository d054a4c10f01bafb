"""Watch the derivatives that a running script takes with `torch.autograd.grad`, and report wrong ones.

Every `torch.autograd.grad(..., create_graph=True)` is inspected the first few times that its line runs, using only the
graph that it differentiates.
"""

from __future__ import annotations

import math
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from dudx.backend.fused_kernels import is_fused_norm
from dudx.diagnose.measured_errors import nonzero
from dudx.errors import first_line, percent, whole_number

_KINKED = ("Relu", "Threshold", "LeakyRelu", "Hardtanh", "Prelu", "RreluWithNoise", "Hardshrink", "Softshrink")
#: Key of the metadata of a graph node under which the order of a derivative is stored.
_ORDER = "dudx order"
_LIBRARIES = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sysconfig.get_path("stdlib")})

Kind = Literal["coupled", "fused", "kinks", "detached"]
#: Remedies by kind of finding.
REMEDIES: dict[Kind, str] = {
    "coupled": "use dudx.evaluate on dudx.isolate(model, x), or dudx.PerSampleAD()",
    "fused": "use dudx.AD() or dudx.Taylor(), which write the normalisation out",
    "kinks": "use a smooth activation, such as nn.Tanh, nn.SiLU or nn.GELU",
    "detached": "take no_grad, detach, .data and numpy out of the way from the points to the output",
}


@dataclass(frozen=True)
class Finding:
    """A problem with a derivative, and the line that takes it.

    >>> print(dudx.diagnose.Finding("kinks", "train.py", 12, 2, "the network has kinks"))
    train.py:12: the network has kinks; use a smooth activation, such as nn.Tanh, nn.SiLU or nn.GELU.
    """

    kind: Kind
    file: str
    line: int
    #: The order of the derivative.
    order: int
    says: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.says}; {REMEDIES[self.kind]}."


@dataclass(repr=False)
class Watch:
    """Context manager that collects findings; its `repr` is a report.

    >>> with dudx.diagnose.Watch(calls=1) as seen:
    ...     x = torch.rand(4, 1, requires_grad=True)
    ...     slope = torch.autograd.grad(x.square().sum(), x, create_graph=True)
    >>> seen
    Nothing wrong was seen (1 derivatives at 1 lines).
    """

    calls: int = 3
    findings: list[Finding] = field(default_factory=list)
    #: Number of derivatives per line.
    lines: Counter[tuple[str, int]] = field(default_factory=Counter)
    #: Lines whose derivatives could not be inspected, and why.
    unseen: dict[tuple[str, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.calls = whole_number(self.calls, "calls")
        self._lock, self._inside = threading.Lock(), threading.local()
        self._replaced: list[tuple[Any, str]] = []

    def __repr__(self) -> str:
        taken = f"{sum(self.lines.values())} derivatives at {len(self.lines)} lines"
        unseen = [f"  {file}:{line}: not looked at ({why})" for (file, line), why in self.unseen.items()]
        if not self.findings:
            return "\n".join([f"Nothing wrong was seen ({taken}).", *unseen])
        found = [f"  {finding}" for finding in self.findings]
        return "\n".join([f"{len(self.findings)} findings ({taken}):", *found, *unseen])

    def __enter__(self) -> Watch:
        self._original = original = torch.autograd.grad

        def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(self._inside, "yes", False):  # for tensor subclasses torch calls it again from inside
                return original(outputs, inputs, *args, **kwargs)
            self._inside.yes = True
            try:
                found = original(outputs, inputs, *args, **kwargs)
            finally:
                self._inside.yes = False
            create_graph = kwargs.get("create_graph", args[2] if len(args) > 2 else False)
            if create_graph:
                grad_outputs = kwargs.get("grad_outputs", args[0] if args else None)
                self._seen(outputs, inputs, grad_outputs, found)
            return found

        # Also in modules that imported it by name.
        for module in list(sys.modules.values()):
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if value is original and getattr(module, "__name__", "") != __name__:
                    self._replaced.append((module, name))
        for module, name in self._replaced:
            setattr(module, name, grad)
        self._watching = grad
        return self

    def __exit__(self, *error: object) -> None:
        for module, name in self._replaced:
            if getattr(module, name, None) is self._watching:
                setattr(module, name, self._original)
        self._replaced.clear()

    def _seen(self, outputs: Any, inputs: Any, grad_outputs: Any, found: Sequence[Tensor | None]) -> None:
        file, line = _place(sys._getframe(2))
        outputs, inputs = (_listed(value) for value in (outputs, inputs))
        weights = [None] * len(outputs) if grad_outputs is None else _listed(grad_outputs)
        orders = [_order(u) + 1 for u in outputs]
        for gradient in found:
            if isinstance(gradient, Tensor) and gradient.grad_fn is not None:
                noted: Any = gradient.grad_fn.metadata
                noted[_ORDER] = max(orders)
        with self._lock:
            self.lines[file, line] += 1
            if self.lines[file, line] > self.calls:
                return
        for u, weight, order in zip(outputs, weights, orders, strict=True):
            for x, gradient in zip(inputs, found, strict=True):
                if isinstance(u, Tensor) and isinstance(x, Tensor) and x.ndim >= 1:
                    try:
                        wrong = list(self._wrong(u, x, weight, gradient, order))
                    except Exception as error:  # the script must go on in any case
                        self.unseen[file, line] = first_line(error)
                        continue
                    for kind, says in wrong:
                        self._note(Finding(kind, file, line, order, says))

    def _note(self, finding: Finding) -> None:
        with self._lock:
            known = [(f.kind, f.file, f.line, f.order) for f in self.findings]
            if (finding.kind, finding.file, finding.line, finding.order) not in known:
                self.findings.append(finding)

    def _wrong(
        self, u: Tensor, x: Tensor, weight: Any, gradient: Tensor | None, order: int
    ) -> Iterator[tuple[Kind, str]]:
        which = {1: "first", 2: "second", 3: "third"}.get(order, f"{order}th")
        nodes = list(_nodes(u))
        kink = next((node.name() for node in nodes if node.name().startswith(_KINKED)), None)
        flat = gradient is None or not bool(gradient.detach().as_subclass(Tensor).any())
        error = None if gradient is None or order > 1 else self._coupling(u, x, weight, gradient)
        if error is not None:
            how_much = f"off by {percent(error)}" if math.isfinite(error) else "whose true value is zero"
            yield (
                "coupled",
                (
                    "samples of the batch influence each other, so the gradient of their sum is not each sample's own "
                    f"({how_much})"
                ),
            )
        elif flat and order == 1:
            yield "detached", "the first derivative is zero at every point, as no graph leads to the points"
        if order == 1:
            return
        if kink is not None:
            but = "is zero at every point" if flat else "is that of what is between"
            yield "kinks", f"the network has kinks ({kink}), and the {which} derivative {but}"
        fused = next((node.name() for node in nodes if is_fused_norm(node)), None)
        if fused is not None:
            yield "fused", f"the {which} derivative is taken through a fused norm ({fused}), and has a wrong gradient"

    def _coupling(self, u: Tensor, x: Tensor, weight: Any, gradient: Tensor) -> float | None:
        """Return the error of the gradient of a sum at some rows; None if these depend on no other row."""
        edge, shape = u, u.shape
        if u.ndim == 0 and u.grad_fn is not None and u.grad_fn.name() == "SumBackward0":
            shape = torch.Size(getattr(u.grad_fn, "_saved_self_sym_sizes", ()))
            node, number = u.grad_fn.next_functions[0]
            if node is None:
                return None
            edge = GradientEdge(node, number)
            weight = None
        rows = len(x)
        if not shape or shape[0] != rows or rows < 2 or x.ndim < 2:
            return None
        # Tensor subclasses of other libraries may not support gradients computed here.
        ones = torch.ones(shape, dtype=u.dtype, device=u.device) if weight is None else weight.as_subclass(Tensor)
        gradient = gradient.detach().as_subclass(Tensor)
        worst = None
        for row in {0, rows // 2}:
            one = torch.zeros_like(ones)
            one[row] = ones[row]
            (own,) = self._original(edge, x, one, retain_graph=True, allow_unused=True)
            if own is None:
                return None
            own = own.as_subclass(Tensor)
            others = own.clone()
            others[row] = 0
            scale = float(own.abs().amax())
            if float(others.abs().amax()) > 1e3 * torch.finfo(own.dtype).eps * scale:
                size = nonzero(own[row].norm(), gradient[row].norm())
                error = float((gradient[row] - own[row]).norm() / size)
                worst = max(worst or 0.0, error)
        return worst


def watch(calls: int = 3) -> Watch:
    """Inspect the derivatives taken inside the block, `with dudx.watch() as seen: train()`.

    Every `torch.autograd.grad(..., create_graph=True)`, of any library, is inspected: whether samples are coupled
    (the gradient of a sum through batch norm or attention), whether a second derivative goes through fused
    normalisations or kinks, whether the graph was left. `print(seen)` is the report, with files and lines.

    Args:
        calls: number of inspections per line, which bounds the cost.

    >>> def slope(u, x):
    ...     return torch.autograd.grad(u.sum(), x, create_graph=True)[0]
    >>> x = torch.rand(8, 2, requires_grad=True)
    >>> with dudx.watch() as seen:
    ...     gradient = slope(x.square() - x.square().mean(0), x)
    >>> [found.kind for found in seen.findings]
    ['coupled']
    """
    return Watch(calls)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, Tensor) else [value]


def _nodes(u: Tensor) -> Iterator[Any]:
    seen, ahead = set(), [u.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        ahead.extend(following for following, _ in node.next_functions)


def _order(u: Any) -> int:
    """Return the order of the derivatives that u was computed from."""
    return max((node.metadata.get(_ORDER, 0) for node in _nodes(u)), default=0) if isinstance(u, Tensor) else 0


def _place(frame: FrameType | None) -> tuple[str, int]:
    """Return the line that takes the derivative: the innermost one outside libraries, if there is one."""
    first = frame
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    frame = frame or first
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)
