"""Runs in PINA's environment: every problem plainly and accelerated, and what came out of both as one JSON a line."""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path

import lightning
import torch
from lightning import seed_everything
from pina import Trainer
from pina_problems import SOLVERS

import dudx
import dudx.adapters.pina as faster
from dudx.adapters.fallback import AdapterWarning
from dudx.adapters.pina_fields import EquationOfFields

torch.set_num_threads(1)


def made(name):
    seed_everything(1, verbose=False)  # some points are drawn by numpy
    return SOLVERS[name]()


def parameters(solver):
    return [*solver.model.parameters(), *(solver._params or {}).values()]


def difference(one, other):
    one, other = (torch.cat([t.detach().as_subclass(torch.Tensor).flatten() for t in each]) for each in (one, other))
    return float((one - other).abs().max() / other.abs().max())


def residual_and_gradient(solver):
    """Return the residual of the interior equation and the gradient of its mean square."""
    condition = solver.problem.conditions["D"]
    loss = solver._compute_condition_loss(condition, {"input": condition.input}, 0)
    gradients = torch.autograd.grad(loss.as_subclass(torch.Tensor), parameters(solver), allow_unused=True)
    filled = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters(solver), gradients, strict=True)]
    return solver.residual_tensor, filled


def trained(solver):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    Trainer(solver, max_epochs=5, accelerator="cpu", logger=False, **quiet).train()
    return parameters(solver)


def compared(name, **options):
    plain, solver = made(name), made(name)
    trainer = {"accelerator": "cpu", "enable_progress_bar": False, "logger": False, "enable_checkpointing": False}
    for each in (plain, solver):  # a trainer turns the problem's domains into points
        Trainer(each, max_epochs=0, **trainer).train()
        each.train()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        faster.accelerate(solver, **options)
        residual, gradient = residual_and_gradient(solver)
        theirs = residual_and_gradient(plain)
        condition = solver.problem.conditions["D"]
        known = solver._compute_condition_loss.equations[condition.equation, tuple(condition.input.labels)]
        report = {
            "served": known is not None,
            "as a whole": isinstance(known, EquationOfFields),
            "residuals": difference([residual], [theirs[0]]),
            "gradients": difference(gradient, theirs[1]),
            "trained": difference(trained(solver), trained(plain)),
            "at once": any(solver._compute_condition_loss.together.values()),
        }
    return report | {"said": [str(one.message) for one in said if issubclass(one.category, AdapterWarning)]}


CASES = {name: (lambda name=name: compared(name)) for name in SOLVERS}
CASES["FD"] = lambda: compared("poisson", engine=dudx.FD(), compile=False)


def lightning_example():
    """The module that docs/loops.md shows, trained by Lightning itself."""
    page = (Path(__file__).parents[2] / "docs" / "loops.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    space = {"torch": torch, "dudx": dudx, "lightning": lightning}
    exec(block, space)
    seed_everything(1, verbose=False)
    module = space["Heat"]()
    points = torch.rand(64, 2)
    before = float(module.heat.loss(module.net, points, dudx.AD()).detach())
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(points), batch_size=32)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    lightning.Trainer(max_epochs=20, accelerator="cpu", logger=False, **quiet).fit(module, loader)
    return {"before": before, "after": float(module.heat.loss(module.net, points, dudx.AD()).detach())}


CASES["lightning"] = lightning_example

if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        print("REPORT", json.dumps({"case": name, **CASES[name]()}), flush=True)
