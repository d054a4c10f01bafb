"""Scripts as DeepXDE's documentation shows them, each as a function that makes a compiled model."""

from __future__ import annotations

import os

os.environ["DDE_BACKEND"] = "pytorch"

import deepxde as dde
import numpy as np
import torch

dde.config.set_default_float("float64")


def burgers(optimizer="adam", points=254):
    def pde(x, y):
        dy_x = dde.grad.jacobian(y, x, i=0, j=0)
        dy_t = dde.grad.jacobian(y, x, i=0, j=1)
        dy_xx = dde.grad.hessian(y, x, i=0, j=0)
        return dy_t + y * dy_x - 0.01 / np.pi * dy_xx

    geom = dde.geometry.Interval(-1, 1)
    timedomain = dde.geometry.TimeDomain(0, 0.99)
    geomtime = dde.geometry.GeometryXTime(geom, timedomain)
    bc = dde.icbc.DirichletBC(geomtime, lambda x: 0, lambda _, on_boundary: on_boundary)
    ic = dde.icbc.IC(geomtime, lambda x: -np.sin(np.pi * x[:, 0:1]), lambda _, on_initial: on_initial)
    data = dde.data.TimePDE(geomtime, pde, [bc, ic], num_domain=points, num_boundary=80, num_initial=160)
    net = dde.nn.FNN([2] + [20] * 3 + [1], "tanh", "Glorot normal")
    model = dde.Model(data, net)
    model.compile(optimizer, lr=None if optimizer == "L-BFGS" else 1e-3, verbose=0)
    return model


def burgers_with_few_conditions():
    """Burgers' equation with few boundary points, so that they share the pass of the interior points."""
    return burgers(points=2540)


def poisson_l_shape():
    def pde(x, y):
        dy_xx = dde.grad.hessian(y, x, i=0, j=0)
        dy_yy = dde.grad.hessian(y, x, i=1, j=1)
        return -dy_xx - dy_yy - 1

    geom = dde.geometry.Polygon([[0, 0], [1, 0], [1, -1], [-1, -1], [-1, 1], [0, 1]])
    bc = dde.icbc.DirichletBC(geom, lambda x: 0, lambda _, on_boundary: on_boundary)
    data = dde.data.PDE(geom, pde, bc, num_domain=120, num_boundary=40, num_test=150)
    net = dde.nn.FNN([2] + [50] * 4 + [1], "tanh", "Glorot uniform")
    model = dde.Model(data, net)
    model.compile("adam", lr=0.001, verbose=0)
    return model


def euler_beam():
    """Fourth order; conditions are operators."""

    def ddy(x, y):
        return dde.grad.hessian(y, x)

    def dddy(x, y):
        return dde.grad.jacobian(ddy(x, y), x)

    def pde(x, y):
        dy_xx = ddy(x, y)
        dy_xxxx = dde.grad.hessian(dy_xx, x)
        return dy_xxxx + 1

    def left(x, on_boundary):
        return on_boundary and dde.utils.isclose(x[0], 0)

    def right(x, on_boundary):
        return on_boundary and dde.utils.isclose(x[0], 1)

    geom = dde.geometry.Interval(0, 1)
    bc1 = dde.icbc.DirichletBC(geom, lambda x: 0, left)
    bc2 = dde.icbc.NeumannBC(geom, lambda x: 0, left)
    bc3 = dde.icbc.OperatorBC(geom, lambda x, y, _: ddy(x, y), right)
    bc4 = dde.icbc.OperatorBC(geom, lambda x, y, _: dddy(x, y), right)
    data = dde.data.PDE(geom, pde, [bc1, bc2, bc3, bc4], num_domain=10, num_boundary=2, num_test=100)
    net = dde.nn.FNN([1] + [20] * 3 + [1], "tanh", "Glorot uniform")
    model = dde.Model(data, net)
    model.compile("adam", lr=0.001, verbose=0)
    return model


def kovasznay():
    """Three outputs, three equations."""

    def pde(x, u):
        u_vel, v_vel, _ = u[:, 0:1], u[:, 1:2], u[:, 2:]
        u_vel_x = dde.grad.jacobian(u, x, i=0, j=0)
        u_vel_y = dde.grad.jacobian(u, x, i=0, j=1)
        u_vel_xx = dde.grad.hessian(u, x, component=0, i=0, j=0)
        u_vel_yy = dde.grad.hessian(u, x, component=0, i=1, j=1)
        v_vel_x = dde.grad.jacobian(u, x, i=1, j=0)
        v_vel_y = dde.grad.jacobian(u, x, i=1, j=1)
        v_vel_xx = dde.grad.hessian(u, x, component=1, i=0, j=0)
        v_vel_yy = dde.grad.hessian(u, x, component=1, i=1, j=1)
        p_x = dde.grad.jacobian(u, x, i=2, j=0)
        p_y = dde.grad.jacobian(u, x, i=2, j=1)
        momentum_x = u_vel * u_vel_x + v_vel * u_vel_y + p_x - 1 / 20 * (u_vel_xx + u_vel_yy)
        momentum_y = u_vel * v_vel_x + v_vel * v_vel_y + p_y - 1 / 20 * (v_vel_xx + v_vel_yy)
        return [momentum_x, momentum_y, u_vel_x + v_vel_y]

    decay = 1 / (2 * 0.05) - np.sqrt(1 / (4 * 0.05**2) + 4 * np.pi**2)
    spatial_domain = dde.geometry.Rectangle(xmin=[-0.5, -0.5], xmax=[1, 1.5])

    def u_func(x):
        return 1 - np.exp(decay * x[:, 0:1]) * np.cos(2 * np.pi * x[:, 1:2])

    def v_func(x):
        return decay / (2 * np.pi) * np.exp(decay * x[:, 0:1]) * np.sin(2 * np.pi * x[:, 1:2])

    def p_func(x):
        return 1 / 2 * (1 - np.exp(2 * decay * x[:, 0:1]))

    def boundary_outflow(x, on_boundary):
        return on_boundary and dde.utils.isclose(x[0], 1)

    bcs = [
        dde.icbc.DirichletBC(spatial_domain, u_func, lambda _, on_boundary: on_boundary, component=0),
        dde.icbc.DirichletBC(spatial_domain, v_func, lambda _, on_boundary: on_boundary, component=1),
        dde.icbc.DirichletBC(spatial_domain, p_func, boundary_outflow, component=2),
    ]
    data = dde.data.PDE(spatial_domain, pde, bcs, num_domain=260, num_boundary=40, num_test=200)
    net = dde.nn.FNN([2] + [30] * 4 + [3], "tanh", "Glorot uniform")
    model = dde.Model(data, net)
    model.compile("adam", lr=1e-3, verbose=0)
    return model


def inverse_diffusion():
    """An unknown constant, observations, and hard conditions by an output transform."""
    C = dde.Variable(2.0)

    def pde(x, y):
        dy_t = dde.grad.jacobian(y, x, i=0, j=1)
        dy_xx = dde.grad.hessian(y, x, i=0, j=0)
        source = torch.exp(-x[:, 1:]) * (torch.sin(np.pi * x[:, 0:1]) - np.pi**2 * torch.sin(np.pi * x[:, 0:1]))
        return dy_t - C * dy_xx + source

    def func(x):
        return np.sin(np.pi * x[:, 0:1]) * np.exp(-x[:, 1:])

    geomtime = dde.geometry.GeometryXTime(dde.geometry.Interval(-1, 1), dde.geometry.TimeDomain(0, 1))
    observe_x = np.vstack((np.linspace(-1, 1, num=10), np.full((10), 1))).T
    observe_y = dde.icbc.PointSetBC(observe_x, func(observe_x), component=0)
    data = dde.data.TimePDE(
        geomtime, pde, [observe_y], num_domain=40, num_boundary=20, num_initial=10, anchors=observe_x, solution=func
    )
    net = dde.nn.FNN([2] + [32] * 3 + [1], "tanh", "Glorot uniform")
    net.apply_output_transform(lambda x, y: x[:, 1:2] * (1 - x[:, 0:1] ** 2) * y + torch.sin(np.pi * x[:, 0:1]))
    model = dde.Model(data, net)
    model.compile("adam", lr=0.001, metrics=["l2 relative error"], external_trainable_variables=C, verbose=0)
    return model


def helmholtz():
    """A feature transform, an auxiliary variable, and a gradient taken as a whole row."""

    def pde(x, y, source):
        dy = dde.grad.jacobian(y, x, i=0)
        dy_xx = dde.grad.jacobian(dy, x, i=0, j=0)
        dy_yy = dde.grad.hessian(y, x, i=1, j=1)
        return -dy_xx - dy_yy - 16 * y - source + 0.1 * torch.sum(dy**2, dim=1, keepdim=True)

    geom = dde.geometry.Rectangle([0, 0], [1, 1])
    bc = dde.icbc.DirichletBC(geom, lambda x: 0, lambda _, on_boundary: on_boundary)
    data = dde.data.PDE(
        geom, pde, bc, num_domain=100, num_boundary=40,
        auxiliary_var_function=lambda x: np.sin(2 * x[:, 0:1]) * np.sin(2 * x[:, 1:2]),
    )  # fmt: skip
    net = dde.nn.FNN([4] + [30] * 2 + [1], "sin", "Glorot uniform")
    net.apply_feature_transform(lambda x: torch.cat([torch.sin(x), torch.cos(x)], dim=1))
    model = dde.Model(data, net)
    model.compile("adam", lr=1e-3, verbose=0)
    return model


def branching():
    """Its derivatives depend on values: cannot be recorded."""
    model = poisson_l_shape()

    def pde(x, y):
        if y.mean() > 0:
            return dde.grad.hessian(y, x, i=0, j=0) - 1
        return dde.grad.hessian(y, x, i=1, j=1) - 1

    model.data.pde = pde
    return model


def by_hand():
    """Differentiates by torch itself."""
    model = poisson_l_shape()

    def pde(x, y):
        (dy,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
        return dy[:, 0:1] - dde.grad.hessian(y, x, i=1, j=1)

    model.data.pde = pde
    return model


def over_all_points():
    """A mean over all points, those of the conditions included."""
    model = poisson_l_shape()
    model.data.pde = lambda x, y: dde.grad.hessian(y, x, i=0, j=0) - y.mean()
    return model


def integral():
    """Data of another kind."""

    def ide(x, y, int_mat):
        rhs = torch.matmul(torch.as_tensor(int_mat), y)
        return (dde.grad.jacobian(y, x) + y)[: len(rhs)] - rhs[: len(y)]

    geom = dde.geometry.TimeDomain(0, 5)
    ic = dde.icbc.IC(geom, lambda x: 1, lambda _, on_initial: on_initial)
    data = dde.data.IDE(geom, ide, ic, quad_deg=5, kernel=lambda x, s: np.exp(s - x), num_domain=10, num_boundary=2)
    model = dde.Model(data, dde.nn.FNN([1, 20, 1], "tanh", "Glorot uniform"))
    model.compile("adam", lr=0.001, verbose=0)
    return model
