"""Time general features: a function without a rule, a matrix of second derivatives, ensembles, changing batch sizes.

python benchmarks/any_network.py

Times are the minimum over interleaved rounds; CPU time if one thread is used.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial, reduce
from operator import add
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import jvp, vmap

import dudx
from dudx import D, Taylor, evaluate


def least(subjects: dict[str, Callable[[], Any]], rounds: int = 15) -> dict[str, float]:
    """Return ms per call of each subject, measured in interleaved rounds."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    best = dict.fromkeys(subjects, float("inf"))
    for _ in range(rounds):
        for name, run in subjects.items():
            start = clock()
            run()
            best[name] = min(best[name], 1e3 * (clock() - start))
    return best


def network(inputs: int, width: int = 24, depth: int = 3) -> nn.Sequential:
    """Return a tanh network."""
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [nn.Linear(width if i else inputs, width), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def without_a_rule() -> dict[str, float]:
    """Time the Laplacian of a running product of 16 features, and the nested forward mode that it needs at least."""
    x, along = torch.rand(1024, 16), torch.rand(16, 1024, 16)
    # Created once, as networks are: a new object would be checked at each call.
    model = partial(torch.cumprod, dim=1)

    def second(v: Tensor) -> Tensor:
        return jvp(lambda x: jvp(model, (x,), (v,))[1], (x,), (v,))[1]

    return least(
        {
            "cumprod by Taylor": lambda: evaluate(model, x, dudx.Laplacian(), Taylor()),
            "its nested jvp": lambda: vmap(second)(along).sum(0),
        }
    )


def matrix(dimensions: int = 20) -> dict[str, float]:
    """Time all mixed second derivatives with constant coefficients."""
    factors = torch.randn(dimensions, dimensions, dtype=torch.float64)
    a = factors @ factors.T / dimensions
    model, x = network(dimensions, 64), torch.rand(256, dimensions)
    pairs = [(i, j) for i in range(dimensions) for j in range(i, dimensions)]
    total = reduce(add, (float(a[i, j]) * (1 if i == j else 2) * D(i, j) for i, j in pairs))
    return least(
        {
            "one sum, along eigenvectors": lambda: evaluate(model, x, total, Taylor()),
            "each pair by itself": lambda: evaluate(model, x, [D(i, j) for i, j in pairs], Taylor()),
        },
        rounds=5,
    )


def ensemble(compile: bool = False, members: int = 8, threads: int = 1) -> dict[str, float]:
    """Time Adam steps of small networks, as an ensemble and one by one."""
    torch.set_num_threads(threads)
    networks, x = [network(2) for _ in range(members)], torch.rand(1024, 2)
    # One residual per network: a residual warns about many networks and keeps a limited number of graphs.
    together, *apart = (_step(model, x, compile) for model in (dudx.ensemble(networks), *networks))
    word = "compiled " if compile else ""
    found = least(
        {
            f"a {word}step of {members} as an ensemble, threads: {threads}": together,
            f"{members} single {word}steps": lambda: [step() for step in apart],
        },
        rounds=60 if compile else 15,
    )
    torch.set_num_threads(1)
    return found


def _step(model: nn.Module, x: Tensor, compile: bool) -> Callable[[], None]:
    burgers = _burgers(compile)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        burgers.loss(model, x, Taylor()).sum().backward()
        optimizer.step()

    step()
    return step


def _burgers(compile: bool) -> dudx.Residual:
    return dudx.Residual(lambda u: u.t + u * u.x - 0.01 * u.xx, inputs=("x", "t"), compile=compile)


def sizes() -> dict[str, float]:
    """Time a gradient with the graph for any batch size and with a graph for this size."""
    model, x = network(2), torch.rand(1024, 2)
    fixed, open_ = _burgers(True), _burgers(True)
    for rows in (1000, 1024):  # the second size compiles the graph for all further sizes
        open_.loss(model, x[:rows], Taylor()).backward()
    return least(
        {
            "a gradient for any number of points": lambda: open_.loss(model, x, Taylor()).backward(),
            "for this number": lambda: fixed.loss(model, x, Taylor()).backward(),
        },
        rounds=100,
    )


def main() -> None:
    """Run all benchmarks and print the results."""
    all_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dudx.keep_freed_memory()  # as training does
    warnings.simplefilter("ignore", dudx.errors.SlowRuleWarning)
    compiled = partial(ensemble, compile=True)
    for measured in (without_a_rule, matrix, ensemble, compiled, partial(compiled, threads=all_threads), sizes):
        ours, theirs = (found := measured()).values()
        print(", ".join(f"{name}: {ms:.1f} ms" for name, ms in found.items()), f"ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
