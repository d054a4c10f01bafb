"""DeepXDE's documented Burgers and Poisson examples, before and after `dudx.adapters.deepxde.accelerate`."""
# pyright: reportMissingImports=false

from __future__ import annotations

import os
from typing import Any

os.environ["DDE_BACKEND"] = "pytorch"

import deepxde as dde
import numpy as np
from peers.interleaved import compared

import dudx.adapters.deepxde as faster


def burgers(width: int, scale: int) -> Any:
    """Return Burgers' equation of the documentation: 3×20, 2540 points inside and 240 on the boundary."""

    def pde(x, y):
        dy_x = dde.grad.jacobian(y, x, i=0, j=0)
        dy_t = dde.grad.jacobian(y, x, i=0, j=1)
        dy_xx = dde.grad.hessian(y, x, i=0, j=0)
        return dy_t + y * dy_x - 0.01 / np.pi * dy_xx

    geometry = dde.geometry.GeometryXTime(dde.geometry.Interval(-1, 1), dde.geometry.TimeDomain(0, 0.99))
    edge = dde.icbc.DirichletBC(geometry, lambda x: 0, lambda _, on_boundary: on_boundary)
    start = dde.icbc.IC(geometry, lambda x: -np.sin(np.pi * x[:, 0:1]), lambda _, on_initial: on_initial)
    data = dde.data.TimePDE(geometry, pde, [edge, start], num_domain=2540 * scale, num_boundary=80, num_initial=160)
    return data, [2] + [width] * 3 + [1], "Glorot normal"


def poisson(width: int, scale: int) -> Any:
    """Return Poisson's equation on the L-shaped domain of the documentation: 4×50, 1200 + 120 points."""

    def pde(x, y):
        dy_xx = dde.grad.hessian(y, x, i=0, j=0)
        dy_yy = dde.grad.hessian(y, x, i=1, j=1)
        return -dy_xx - dy_yy - 1

    # A difference of boxes: its points are in single precision, those of a polygon are not.
    geometry = dde.geometry.Rectangle([-1, -1], [1, 1]) - dde.geometry.Rectangle([0, 0], [1, 1])
    edge = dde.icbc.DirichletBC(geometry, lambda x: 0, lambda _, on_boundary: on_boundary)
    data = dde.data.PDE(geometry, pde, edge, num_domain=1200 * scale, num_boundary=120)
    return data, [2] + [width] * 4 + [1], "Glorot uniform"


CASES = {
    "Burgers, 3×20": (burgers, 20, 1),
    "Burgers, 3×128, 7620 points": (burgers, 128, 3),
    "Poisson, 4×50": (poisson, 50, 1),
    "Poisson, 4×128, 7200 points": (poisson, 128, 6),
}


class Script:
    """A DeepXDE model that trains in rounds."""

    def __init__(self, case: str, way: str):
        dde.config.set_random_seed(1)
        make, width, scale = CASES[case]
        data, layers, initializer = make(width, scale)
        if way == "least":
            data.pde = lambda x, y: y
        self.model = dde.Model(data, dde.nn.FNN(layers, "tanh", initializer))
        self.model.compile("adam", lr=1e-3, verbose=0)
        if way == "after":
            faster.accelerate(self.model)

    def train(self, steps: int) -> None:
        """Train some iterations without DeepXDE's tests in between."""
        model = self.model
        for _ in range(steps):
            model.train_state.set_data_train(*model.data.train_next_batch(model.batch_size))
            state = model.train_state
            model._train_step(state.X_train, state.y_train, state.train_aux_vars)

    def losses(self) -> list[float]:
        """Return the losses as DeepXDE computes them."""
        state = self.model.train_state
        return [float(loss) for loss in self.model._outputs_losses(True, state.X_train, state.y_train, None)[1]]


if __name__ == "__main__":
    compared(Script, list(CASES))
