"""A jitted training step in JAX: the Hessian under vmap, or folx's forward Laplacian.

XLA ignores OMP_NUM_THREADS and starts one thread per available core. The process is therefore restricted to as many
cores as threads before JAX is imported, and with one thread XLA's matrix products are set to single-threaded. The first
call of each function compiles it; later calls do not.
"""
# pyright: reportMissingImports=false

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from harness import serve
from peers.problems import NU, SPATIAL

THREADS = int(os.environ["OMP_NUM_THREADS"])
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
os.environ["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen={'false' if THREADS == 1 else 'true'}"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402  (reads its environment when it is imported)
import jax.numpy as jnp  # noqa: E402
from folx import forward_laplacian  # noqa: E402

Function = Callable[[jax.Array], jax.Array]


def network(parameters: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    """Return the tanh network at one point."""
    for w, b in parameters[:-1]:
        x = jnp.tanh(w @ x + b)
    w, b = parameters[-1]
    return (w @ x + b)[0]


def by_hessian(u: Function, x: jax.Array) -> jax.Array:
    """Return the Laplacian of u as the trace of its Hessian."""
    return jnp.trace(jax.hessian(u)(x))


def by_folx(u: Function, x: jax.Array) -> jax.Array:
    """Return the Laplacian of u by folx's forward propagation."""
    return forward_laplacian(u)(x).laplacian


class Jax:
    """A step from the residual at one point under vmap; loss and gradient are one compiled function."""

    def __init__(self, case: Mapping[str, Any]):
        arrays = dict(np.load(case["file"]))
        self.problem = case["problem"]
        self.laplacian = by_folx if case["mode"] == "folx" else by_hessian
        self.x = jnp.asarray(arrays.pop("x"))
        self.parameters = [
            (jnp.asarray(arrays[f"w{i}"]), jnp.asarray(arrays[f"b{i}"])) for i in range(len(arrays) // 2)
        ]
        self.batched = jax.jit(self._batched)
        self.value_and_grad = jax.jit(jax.value_and_grad(lambda p, x: jnp.mean(self._batched(p, x) ** 2)))

    def _batched(self, parameters: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
        return jax.vmap(lambda point: self._one(lambda y: network(parameters, y), point))(x)

    def _one(self, u: Function, x: jax.Array) -> jax.Array:
        if self.problem == "biharmonic":
            return self.laplacian(lambda y: self.laplacian(u, y), x)
        n = SPATIAL[self.problem]
        second = self.laplacian(lambda y: u(jnp.concatenate([y, x[n:]])), x[:n])  # at fixed time
        if self.problem == "burgers":
            value, first = jax.value_and_grad(u)(x)
            return first[1] + value * first[0] - NU * second
        return jax.grad(u)(x)[2] - second if self.problem == "heat" else second

    def residual(self) -> np.ndarray:
        return np.asarray(self.batched(self.parameters, self.x))

    def gradient(self) -> np.ndarray:
        _, gradient = self.value_and_grad(self.parameters, self.x)
        return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(gradient)])

    def step(self) -> None:
        jax.block_until_ready(self.value_and_grad(self.parameters, self.x))


if __name__ == "__main__":
    serve(Jax)
