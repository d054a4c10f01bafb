"""PINA's Burgers and Poisson problems as its tutorials write them, before and after `dudx.adapters.pina.accelerate`."""
# pyright: reportMissingImports=false

from __future__ import annotations

import logging
import warnings

import torch
from lightning import seed_everything
from peers.interleaved import compared
from pina import Condition, Trainer
from pina.domain import CartesianDomain
from pina.equation import Equation
from pina.equation.zoo import FixedValue
from pina.model import FeedForward
from pina.operator import grad, laplacian
from pina.problem import SpatialProblem, TimeDependentProblem
from pina.solver import PhysicsInformedSingleModelSolver

import dudx.adapters.pina as faster

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")


class Burgers(TimeDependentProblem, SpatialProblem):
    """Burgers' equation of PINA's tutorial on custom problems."""

    def burger_equation(input_, output_):
        du = grad(output_, input_)
        ddu = grad(du, input_, components=["dudx"])
        return (
            du.extract(["dudt"])
            + output_.extract(["u"]) * du.extract(["dudx"])
            - (0.01 / torch.pi) * ddu.extract(["ddudxdx"])
        )

    def initial_condition(input_, output_):
        return output_.extract(["u"]) + torch.sin(torch.pi * input_.extract(["x"]))

    output_variables = ["u"]
    spatial_domain = CartesianDomain({"x": [-1, 1]})
    temporal_domain = CartesianDomain({"t": [0, 1]})
    domains = {
        "bound_cond1": CartesianDomain({"x": -1, "t": [0, 1]}),
        "bound_cond2": CartesianDomain({"x": 1, "t": [0, 1]}),
        "time_cond": CartesianDomain({"x": [-1, 1], "t": 0}),
        "phys_cond": CartesianDomain({"x": [-1, 1], "t": [0, 1]}),
    }
    conditions = {
        "bound_cond1": Condition(domain="bound_cond1", equation=FixedValue(0.0)),
        "bound_cond2": Condition(domain="bound_cond2", equation=FixedValue(0.0)),
        "time_cond": Condition(domain="time_cond", equation=Equation(initial_condition)),
        "phys_cond": Condition(domain="phys_cond", equation=Equation(burger_equation)),
    }


class Poisson(SpatialProblem):
    """Poisson's equation of PINA's tutorial on extra features."""

    def laplace_equation(input_, output_):
        force_term = torch.sin(input_.extract(["x"]) * torch.pi) * torch.sin(input_.extract(["y"]) * torch.pi)
        return laplacian(output_, input_, components=["u"], d=["x", "y"]) - force_term

    output_variables = ["u"]
    spatial_domain = CartesianDomain({"x": [0, 1], "y": [0, 1]})
    domains = {"phys_cond": spatial_domain, "border": spatial_domain.partial()}
    conditions = {
        "border": Condition(domain="border", equation=FixedValue(0.0)),
        "phys_cond": Condition(domain="phys_cond", equation=Equation(laplace_equation)),
    }


CASES = {
    "Burgers, 3×20": (Burgers, [20] * 3, 2540),
    "Burgers, 3×128, 7620 points": (Burgers, [128] * 3, 7620),
    "Poisson, 2×10": (Poisson, [10] * 2, 1250),
    "Poisson, 4×128, 7200 points": (Poisson, [128] * 4, 7200),
}


class Script:
    """A PINA solver that trains in rounds."""

    def __init__(self, case: str, way: str):
        seed_everything(1, verbose=False)  # boundary points are sampled by numpy
        problem, layers, points = CASES[case]
        inside = "phys_cond"
        if way == "least":
            values = Condition(domain=inside, equation=Equation(lambda input_, output_: output_.extract(["u"])))
            problem = type("Least", (problem,), {"conditions": {**problem.conditions, inside: values}})
        self.problem = problem()
        self.problem.discretise_domain(points, "random", domains=[inside])
        self.problem.discretise_domain(100, "random", domains=[name for name in problem.domains if name != inside])
        model = FeedForward(2, 1, layers=layers, func=torch.nn.Tanh)
        self.solver = PhysicsInformedSingleModelSolver(self.problem, model)
        if way == "after":
            faster.accelerate(self.solver)

    def train(self, steps: int) -> None:
        """Train some epochs of one batch each."""
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
        trainer = Trainer(self.solver, max_epochs=steps, accelerator="cpu", logger=False, **quiet)
        trainer.train()
        self.metrics = {name: float(value) for name, value in trainer.logged_metrics.items()}

    def losses(self) -> list[float]:
        """Return the losses that the trainer logged last."""
        return list(self.metrics.values())


if __name__ == "__main__":
    compared(Script, list(CASES))
