"""Subjects of the benchmark: engines of dudx, peers, and bare matrix products as a lower bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Subject that all times are relative to.
BASE = "AD"


@dataclass(frozen=True)
class Entry:
    """An implementation: its worker, the worker's environment (None is our own) and its arguments."""

    name: str
    script: str
    environment: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Tolerances of the relative error of residual and gradient; None if there is nothing to compare.
    tolerance: tuple[float, float] | None = (1e-3, 1e-3)


#: Tolerances of finite differences in single precision: truncation and rounding. Their gradient sums large terms that
#: cancel, over all points, and loses digits with every doubling of the batch; the results contain the errors.
DIFFERENCES = (5e-2, 1.0)


def ours(chunk: int | str) -> list[Entry]:
    """Return engines of dudx; AD has no compiled form, since torch.compile does not support nested reverse mode."""
    entries = []
    for engine in ("AD", "FD", "EFD", "SFD", "Taylor"):
        tolerance = DIFFERENCES if engine.endswith("FD") else (1e-3, 1e-3)
        for compiled in (False, True) if engine != "AD" else (False,):
            for streamed in (False, True):
                name = engine + " compiled" * compiled + " streamed" * streamed
                options = {"engine": engine, "compile": compiled, "chunk": chunk if streamed else None}
                entries.append(Entry(name, "worker_dudx.py", None, options, tolerance))
    return entries


PEERS = [
    Entry("raw autograd", "peers/worker_raw.py"),
    Entry("torch.func hessian", "peers/worker_func.py", None, {"mode": "hessian"}),
    Entry("torch.func hessian compiled", "peers/worker_func.py", None, {"mode": "hessian", "compile": True}),
    Entry("torch.func jvp", "peers/worker_func.py", None, {"mode": "forward"}),
    Entry("torch.func jvp compiled", "peers/worker_func.py", None, {"mode": "forward", "compile": True}),
    Entry("DeepXDE reverse", "peers/worker_deepxde.py", "deepxde", {"mode": "reverse"}),
    Entry("DeepXDE forward", "peers/worker_deepxde.py", "deepxde", {"mode": "forward"}),
    Entry("PINA", "peers/worker_pina.py", "pina"),
    Entry("PhysicsNeMo differences", "peers/worker_physicsnemo.py", "physicsnemo", tolerance=DIFFERENCES),
    Entry("torch-jet", "peers/worker_jet.py", "jet"),
    Entry("torch-jet compiled", "peers/worker_jet.py", "jet", {"compile": True}),
    Entry("JAX hessian", "peers/worker_jax.py", "jax", {"mode": "hessian"}),
    Entry("JAX folx", "peers/worker_jax.py", "jax", {"mode": "folx"}),
]

BOUNDS = [
    Entry(f"products of {method}", "peers/worker_matmul.py", None, {"method": method}, None)
    for method in ("AD", "FD", "Taylor")
]


def entries(chunk: int | str = "auto") -> list[Entry]:
    """Return all subjects."""
    return ours(chunk) + PEERS + BOUNDS
