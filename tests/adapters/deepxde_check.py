"""Runs in DeepXDE's environment: every script plainly and accelerated, and what came out of both as one JSON a line."""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from pathlib import Path

import deepxde_models as scripts
import torch
from deepxde_models import dde

import dudx
import dudx.adapters.deepxde as faster
from dudx.adapters.fallback import AdapterWarning

torch.set_num_threads(1)


def made(script, **options):
    dde.config.set_random_seed(1)
    return script(**options)


def points(model):
    model.train_state.set_data_train(*model.data.train_next_batch(model.batch_size))
    state = model.train_state
    return state.X_train, state.y_train, state.train_aux_vars


def parameters(model):
    return [*model.net.parameters(), *model.external_trainable_variables]


def residuals_and_gradients(model):
    """Return the values of the pde at interior points, and the gradient of all losses."""
    pde, seen = model.data.pde, []

    def watched(*given):
        found = pde(*given)
        seen.append(found if isinstance(found, list) else [found])
        return found

    by_parameters = {2: lambda x, y: watched(x, y), 3: lambda x, y, a: watched(x, y, a)}
    model.data.pde = by_parameters[dde.utils.get_num_args(pde)]
    losses = model.outputs_losses_train(*points(model))[1]
    model.data.pde = pde
    outside = sum(model.data.num_bcs)
    values = torch.cat([one[outside:] for one in seen[0]])
    return values.detach(), torch.autograd.grad(losses.sum(), parameters(model)), losses.detach()


def difference(one, other):
    one, other = torch.cat([t.flatten() for t in one]), torch.cat([t.flatten() for t in other])
    return float((one - other).abs().max() / other.abs().max())


def compared(script, **options):
    """Compare residuals and gradients of the first step, and losses and parameters after some steps."""
    plain, model = made(script), made(script)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        faster.accelerate(model, **options)
        model._train_step.equation = model._train_step._recorded(points(model))
        model._train_step.known = (model.data.pde, model.net)
    equation = model._train_step.equation
    report = {"said": [str(one.message) for one in said if issubclass(one.category, AdapterWarning)]}
    if equation is not None:
        theirs = residuals_and_gradients(plain)
        with equation.served():
            ours = residuals_and_gradients(model)
        report["residuals"] = difference([ours[0]], [theirs[0]])
        report["gradients"] = difference(ours[1], theirs[1])
        report["losses"] = difference([ours[2]], [theirs[2]])
    for each in (plain, model):
        each.train(iterations=20, display_every=20, verbose=0)
    report["trained"] = difference(parameters(model), parameters(plain))
    report["displayed"] = difference(
        [torch.as_tensor(model.train_state.loss_train)], [torch.as_tensor(plain.train_state.loss_train)]
    )
    return report


def lbfgs():
    """Compiled again with another optimizer, the model stays accelerated."""
    plain, model = made(scripts.burgers), made(scripts.burgers)
    faster.accelerate(model)
    for each in (plain, model):
        each.train(iterations=3, verbose=0)
        each.compile("L-BFGS", verbose=0)
        each.opt.param_groups[0]["max_iter"] = 10  # of hundreds, which would make a large difference of rounding
        each._train_step(*points(each))
    return {"trained": difference(parameters(model), parameters(plain)), "said": []}


def saved():
    """Saved models are restored, and predictions of the pde equal those of the plain model."""
    model, fresh = made(scripts.burgers), made(scripts.burgers)
    faster.accelerate(model)
    model.train(iterations=3, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        fresh.restore(model.save(str(Path(folder) / "model"), verbose=0), verbose=0)
    x = model.data.train_x
    one, other = (each.predict(x, operator=each.data.pde) for each in (model, fresh))
    return {"trained": difference([torch.as_tensor(one)], [torch.as_tensor(other)]), "said": []}


def twice():
    """NNCG differentiates the loss twice, which a compiled graph cannot; the step does without."""
    plain, model = made(scripts.burgers), made(scripts.burgers)
    faster.accelerate(model)
    for each in (plain, model):
        each.compile("NNCG", lr=0.1, verbose=0)
        each.opt.cg_max_iters = 3  # of a thousand, which would make a large difference of rounding
        torch.manual_seed(2)  # which it draws directions from
        each._train_step(*points(each))
    return {"trained": difference(parameters(model), parameters(plain)), "said": []}


CASES = {
    "burgers": lambda: compared(scripts.burgers),
    "few conditions": lambda: compared(scripts.burgers_with_few_conditions),
    "poisson": lambda: compared(scripts.poisson_l_shape),
    "euler beam": lambda: compared(scripts.euler_beam),
    "kovasznay": lambda: compared(scripts.kovasznay),
    "inverse": lambda: compared(scripts.inverse_diffusion),
    "helmholtz": lambda: compared(scripts.helmholtz),
    "AD": lambda: compared(scripts.burgers, engine=dudx.AD()),
    "FD": lambda: compared(scripts.burgers, engine=dudx.FD(), compile=False),
    "L-BFGS": lbfgs,
    "saved": saved,
    "NNCG": twice,
    "branching": lambda: compared(scripts.branching),
    "by hand": lambda: compared(scripts.by_hand),
    "over all points": lambda: compared(scripts.over_all_points),
}


def integral():
    model = made(scripts.integral)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        faster.accelerate(model)
    return {"said": [str(one.message) for one in said], "plain": "_train_step" not in model.__dict__}


CASES["integral"] = integral


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        print("REPORT", json.dumps({"case": name, **CASES[name]()}), flush=True)
