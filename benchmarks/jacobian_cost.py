"""Time a Levenberg-Marquardt step, and the share of matrix products and factorisations in it.

    python benchmarks/jacobian_cost.py [--width 24] [--depth 3] [--points 1500] [--boundary 600] [--engines ad fd]
        [--solver free]

Poisson's equation in double precision on one thread: CPU seconds of a gradient, of the Jacobian and of a step. A
profile of the step gives the share of products and factorisations. The Jacobian is
compared with row-by-row differentiation of a few rows before any number is printed. With many parameters (--width 128
--depth 4) the step has no normal matrix: it solves in sample space if samples are few, or matrix-free (--solver free).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

import dudx
from dudx.engines.interface import Engine
from dudx.errors import percent
from dudx.gradients.rewind import Rewind
from dudx.lab.problems.poisson import poisson
from dudx.lab.run.networks import MLP
from dudx.optim import LevenbergMarquardt, Term, linearize

#: Names of torch's kernels that count as matrix products and factorisations.
PRODUCTS = (
    "aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::mv", "aten::addmv", "aten::addmv_", "aten::dot",
    "aten::linalg_cholesky_ex", "aten::linalg_solve_triangular", "aten::linalg_eigh", "aten::_linalg_eigh",
)  # fmt: skip
ENGINES: dict[str, Callable[[], Engine]] = {
    "taylor": dudx.Taylor,
    "ad": dudx.AD,
    "fd": lambda: dudx.FD(1e-3),
    "efd": lambda: dudx.EFD({1: 1e-3, 2: 1e-3}),
    "sfd": lambda: dudx.SFD((1e-3, 2e-3), generator=torch.Generator().manual_seed(0)),
}


def seconds(run: Callable[[], object], repeats: int) -> float:
    """Return the median CPU seconds after one warm-up call."""
    run()
    found = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return statistics.median(found)


def in_products(run: Callable[[], object]) -> float:
    """Return the share of a call's time in products and factorisations; profiling slows the rest down."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled, record_function("whole"):
        run()
    events = profiled.key_averages()
    whole = next(event.cpu_time_total for event in events if event.key == "whole")
    return sum(event.self_cpu_time_total for event in events if event.key in PRODUCTS) / whole


def agree(terms: list[Term], model: nn.Module) -> None:
    """Raise an error unless some rows of the Jacobian agree with autograd, row by row."""
    parameters = list(model.parameters())
    for term in terms:
        few = {name: value[:5] for name, value in term.data.items()}
        rewind = Rewind(term.generators())  # stochastic steps must be equal in both
        rows = linearize(term.residual, model, term.x[:5], term.engine, data=few)[1].dense()
        rewind()
        values = term.residual(model, term.x[:5], term.engine, **few)
        assert isinstance(values, torch.Tensor)
        for value, row in zip(values, rows, strict=True):
            found = torch.autograd.grad(value, parameters, retain_graph=True, materialize_grads=True, allow_unused=True)
            torch.testing.assert_close(row, torch.cat([g.flatten() for g in found]), rtol=1e-9, atol=1e-9)


def main() -> None:
    """Measure each engine and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--points", type=int, default=1500)
    parser.add_argument("--boundary", type=int, default=600)
    parser.add_argument("--solver", default="auto", choices=["auto", "normal", "kernel", "free"])
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    problem = poisson()
    condition, cpu = problem.conditions[0], torch.device("cpu")
    table = Table()
    for column in ("engine", "gradient, ms", "Jacobian, ms", "step, ms", "tries", "step / gradient", "in products"):
        table.add_column(column, justify="right")
    for name in options.engines:
        torch.manual_seed(0)
        engine, generator = ENGINES[name](), torch.Generator().manual_seed(0)
        model = MLP(2, 1, options.width, options.depth, problem.domain.bounds).double()
        x = problem.domain.sample(options.points, generator, cpu, torch.float64)
        edge, data = condition.sample(options.boundary, generator, cpu, torch.float64)
        terms = [
            Term(problem.residual, model, x, engine, weight=1.0),
            Term(condition.residual, model, edge, engine, weight=1e4, data=data),
        ]
        agree(terms, model)
        optimizer = LevenbergMarquardt(model.parameters(), solver=options.solver)
        for _ in range(10):  # skip the first steps, which try several dampings
            optimizer.step(terms)

        def gradient(terms: list[Term] = terms, model: nn.Module = model) -> None:
            losses = [term.residual.loss(term.model, term.x, term.engine, **term.data) for term in terms]
            torch.autograd.grad(torch.stack(losses).sum(), list(model.parameters()))

        def linearized(terms: list[Term] = terms, model: nn.Module = model) -> None:
            for term in terms:
                part = term.linearized(list(model.parameters()), None)[1]
                if optimizer.form(options.points + options.boundary) != "free":  # noqa: B023  (called in this turn of the loop only)
                    part.dense()

        tries: list[int] = []

        def step(
            terms: list[Term] = terms, optimizer: LevenbergMarquardt = optimizer, tries: list[int] = tries
        ) -> None:
            optimizer.step(terms)
            assert optimizer.last is not None
            tries.append(optimizer.last.tries)

        of_gradient, of_jacobian = seconds(gradient, options.repeats), seconds(linearized, options.repeats)
        of_step = seconds(step, options.repeats)
        table.add_row(
            name,
            f"{1e3 * of_gradient:.1f}",
            f"{1e3 * of_jacobian:.1f}",
            f"{1e3 * of_step:.1f}",
            f"{statistics.mean(tries):.1f}",
            f"{of_step / of_gradient:.1f}",
            percent(in_products(step)),
        )
        parameters, rows = sum(p.numel() for p in model.parameters()), len(x) + len(edge)
        table.title = f"P = {parameters}, N = {rows}, the step is {optimizer.form(rows)!r}"
    Console().print(table)


if __name__ == "__main__":
    main()
