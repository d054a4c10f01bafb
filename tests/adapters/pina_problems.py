"""Problems as PINA's tutorials write them, each as a function that makes a solver."""

from __future__ import annotations

import logging

import torch
from pina import Condition, LabelTensor
from pina.domain import CartesianDomain
from pina.equation import Equation, SystemEquation
from pina.equation.zoo import BurgersEquation, FixedValue, PoissonEquation
from pina.model import FeedForward
from pina.operator import advection, div, grad, laplacian
from pina.problem import InverseProblem, SpatialProblem, TimeDependentProblem
from pina.solver import PhysicsInformedSingleModelSolver

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_default_dtype(torch.float64)


def _solver(problem, model=None, points=60):
    problem.discretise_domain(points, "random")
    outputs = len(problem.output_variables)
    model = model or FeedForward(len(problem.input_variables), outputs, layers=[20, 20], func=torch.nn.Tanh)
    return PhysicsInformedSingleModelSolver(problem=problem, model=model)


class Burgers(TimeDependentProblem, SpatialProblem):
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
        "bound": CartesianDomain({"x": -1, "t": [0, 1]}),
        "time": CartesianDomain({"x": [-1, 1], "t": 0}),
        # The other way round than the problem's variables, as a user may write it.
        "D": CartesianDomain({"t": [0, 1], "x": [-1, 1]}),
    }
    conditions = {
        "bound": Condition(domain="bound", equation=FixedValue(0.0)),
        "time": Condition(domain="time", equation=Equation(initial_condition)),
        "D": Condition(domain="D", equation=Equation(burger_equation)),
    }


class BurgersOfTheZoo(Burgers):
    conditions = Burgers.conditions | {"D": Condition(domain="D", equation=BurgersEquation(0.01))}


class Square(SpatialProblem):
    output_variables = ["u"]
    spatial_domain = CartesianDomain({"x": [0, 1], "y": [0, 1]})
    domains = {"D": spatial_domain, "bound": spatial_domain.partial()}


class Poisson(Square):
    def source(input_):
        return torch.sin(torch.pi * input_.extract(["x"])) * torch.sin(torch.pi * input_.extract(["y"]))

    conditions = {
        "bound": Condition(domain="bound", equation=FixedValue(0.0)),
        "D": Condition(domain="D", equation=PoissonEquation(source)),
    }


class Plate(Square):
    """Fourth order."""

    def biharmonic(input_, output_):
        return laplacian(laplacian(output_, input_), input_) - 1

    conditions = {
        "bound": Condition(domain="bound", equation=FixedValue(0.0)),
        "D": Condition(domain="D", equation=Equation(biharmonic)),
    }


class NavierStokes(Square):
    """Three outputs; a system of equations by div, advection and laplacian."""

    output_variables = ["u", "v", "p"]

    def momentum(input_, output_):
        convected = advection(output_, input_, velocity_field=["u", "v"], components=["u", "v"])
        viscous = laplacian(output_, input_, components=["u", "v"])
        pressure = grad(output_, input_, components=["p"])
        return convected.tensor - 0.05 * viscous.tensor + pressure.tensor

    def continuity(input_, output_):
        return div(output_, input_, components=["u", "v"]).tensor

    conditions = {
        "bound": Condition(domain="bound", equation=FixedValue(0.0, components=["u", "v"])),
        "D": Condition(domain="D", equation=SystemEquation([momentum, continuity])),
    }


class InversePoisson(SpatialProblem, InverseProblem):
    """Two unknown parameters."""

    def laplace_equation(input_, output_, params_):
        force_term = torch.exp(
            -2 * (input_.extract(["x"]) - params_["mu1"]) ** 2 - 2 * (input_.extract(["y"]) - params_["mu2"]) ** 2
        )
        delta_u = laplacian(output_, input_, components=["u"], d=["x", "y"])
        return delta_u - force_term

    output_variables = ["u"]
    spatial_domain = CartesianDomain({"x": [-2, 2], "y": [-2, 2]})
    unknown_parameter_domain = CartesianDomain({"mu1": [-1, 1], "mu2": [-1, 1]})
    domains = {"D": spatial_domain, "bound": spatial_domain.partial()}
    conditions = {
        "D": Condition(domain="D", equation=Equation(laplace_equation)),
        "bound": Condition(domain="bound", equation=FixedValue(0.0)),
    }


class Hard(torch.nn.Module):
    """Zero on the boundary, by columns of the points that the network asks for by name."""

    def __init__(self):
        super().__init__()
        self.layers = FeedForward(2, 1, layers=[20, 20], func=torch.nn.Tanh)

    def forward(self, x):
        hard = x.extract(["x"]) * (1 - x.extract(["x"])) * x.extract(["y"]) * (1 - x.extract(["y"]))
        return hard * self.layers(x)


class OfAProduct(Square):
    """Differentiates something computed: cannot be recorded."""

    def equation(input_, output_):
        flux = LabelTensor((output_**2).tensor, ["flux"])
        return grad(flux, input_, d=["x"]) - 1

    conditions = {"D": Condition(domain="D", equation=Equation(equation))}


class ByTorch(Poisson):
    """A condition that differentiates by torch itself, of which PINA's operators know nothing."""

    def slope(input_, output_):
        total = output_.as_subclass(torch.Tensor).sum()
        (slopes,) = torch.autograd.grad(total, input_, create_graph=True)
        return slopes.as_subclass(torch.Tensor)[:, :1]

    conditions = Poisson.conditions | {"bound": Condition(domain="bound", equation=Equation(slope))}


class TwoEdges(Poisson):
    """Several conditions of values."""

    domains = Poisson.domains | {"left": CartesianDomain({"x": 0, "y": [0, 1]})}
    conditions = Poisson.conditions | {"left": Condition(domain="left", equation=FixedValue(0.0))}


def normalised():
    """Its output at a point depends on the points that are given with it."""
    layers = [torch.nn.Linear(2, 10), torch.nn.BatchNorm1d(10), torch.nn.Tanh(), torch.nn.Linear(10, 1)]
    return torch.nn.Sequential(*layers)


SOLVERS = {
    "burgers": lambda: _solver(Burgers()),
    "burgers of the zoo": lambda: _solver(BurgersOfTheZoo()),
    "poisson": lambda: _solver(Poisson()),
    "plate": lambda: _solver(Plate()),
    "navier-stokes": lambda: _solver(NavierStokes()),
    "inverse": lambda: _solver(InversePoisson()),
    "hard": lambda: _solver(Poisson(), Hard()),
    "of a product": lambda: _solver(OfAProduct()),
    "by torch": lambda: _solver(ByTorch()),
    "two edges": lambda: _solver(TwoEdges()),
    "batch norm": lambda: _solver(TwoEdges(), normalised()),
}
