"""Laplace's equation on a square with four holes, with DeepXDE: Adam, then L-BFGS."""

import sys  # measuring

import deepxde as dde
import torch  # measuring
from stopwatch import Stopwatch  # measuring

FAST, SEED = "--accelerated" in sys.argv, int(sys.argv[1])  # measuring
torch.set_num_threads(1)  # measuring
dde.config.set_random_seed(SEED)  # measuring

square = dde.geometry.Rectangle([-0.5, -0.5], [0.5, 0.5])
a, b, c, d = [dde.geometry.Disk([x, y], 0.1) for x in (-0.3, 0.3) for y in (-0.3, 0.3)]
# In pairs: half of the boundary points are drawn on each part of a difference or union.
domain = square - ((a | b) | (c | d))


def pde(x, u):
    return dde.grad.hessian(u, x, i=0, j=0) + dde.grad.hessian(u, x, i=1, j=1)


edge = dde.icbc.DirichletBC(domain, lambda x: 1, lambda x, on: on and square.on_boundary(x))
circles = dde.icbc.DirichletBC(domain, lambda x: 0, lambda x, on: on and not square.on_boundary(x))
data = dde.data.PDE(domain, pde, [edge, circles], num_domain=1200, num_boundary=480)
model = dde.Model(data, dde.nn.FNN([2] + [50] * 4 + [1], "tanh", "Glorot uniform"))


class Watch(dde.callbacks.Callback):  # measuring
    def on_batch_end(self):  # measuring
        if watch.look(self.model.predict):  # measuring
            self.model.stop_training = True  # measuring


watch = Stopwatch()  # measuring
model.compile("adam", lr=1e-3, loss_weights=[1, 100, 100])
if FAST:  # measuring
    import dudx.adapters.deepxde as faster  # measuring

    faster.accelerate(model)  # measuring
model.train(iterations=5000, callbacks=[Watch()], verbose=0)
if watch.seconds < watch.cap:  # measuring
    # Short runs one after the other would forget what L-BFGS has learned; its own loop looks every thousand steps.
    model.compile("L-BFGS", loss_weights=[1, 100, 100])
    model.train(callbacks=[Watch()], verbose=0)
watch.write(model.predict)  # measuring
