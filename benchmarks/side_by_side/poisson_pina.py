"""Laplace's equation on a square with four holes, with PINA: Adam, then L-BFGS."""

import logging  # measuring
import sys  # measuring

import torch
from lightning import seed_everything  # measuring
from lightning.pytorch.callbacks import Callback  # measuring
from pina import Condition, Trainer
from pina.domain import CartesianDomain, Difference, EllipsoidDomain, Union
from pina.equation.zoo import FixedValue, PoissonEquation
from pina.model import FeedForward
from pina.optim import TorchOptimizer
from pina.problem import SpatialProblem
from pina.solver import PhysicsInformedSingleModelSolver
from pina.weighting import ScalarWeighting
from stopwatch import Stopwatch  # measuring

FAST, SEED = "--accelerated" in sys.argv, int(sys.argv[1])  # measuring
torch.set_num_threads(1)  # measuring
seed_everything(SEED, verbose=False)  # measuring
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)  # measuring

square = CartesianDomain({"x": [-0.5, 0.5], "y": [-0.5, 0.5]})
holes = [EllipsoidDomain({"x": [x - 0.1, x + 0.1], "y": [y - 0.1, y + 0.1]}) for x in (-0.3, 0.3) for y in (-0.3, 0.3)]


class Poisson(SpatialProblem):
    output_variables = ["u"]
    spatial_domain = square
    domains = {
        "inside": Difference([square, *holes]),
        "edge": square.partial(),
        "circles": Union([hole.partial() for hole in holes]),
    }
    conditions = {
        "inside": Condition(domain="inside", equation=PoissonEquation(lambda x: 0 * x.extract(["x"]))),
        "edge": Condition(domain="edge", equation=FixedValue(1.0)),
        "circles": Condition(domain="circles", equation=FixedValue(0.0)),
    }


problem = Poisson()
problem.discretise_domain(1200, "random", domains=["inside"])
problem.discretise_domain(240, "random", domains=["edge", "circles"])
model = FeedForward(2, 1, layers=[50] * 4, func=torch.nn.Tanh)


def predict(points):  # measuring
    with torch.no_grad():  # measuring
        return model(torch.as_tensor(points, dtype=torch.float32)).numpy()  # measuring


class Watch(Callback):  # measuring
    def on_train_batch_end(self, trainer, *_):  # measuring
        trainer.should_stop = watch.look(predict)  # measuring


watch = Stopwatch()  # measuring
weights = ScalarWeighting({"inside": 1.0, "edge": 100.0, "circles": 100.0})
quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
for optimizer, epochs in (
    (TorchOptimizer(torch.optim.Adam, lr=1e-3), 5000),
    (TorchOptimizer(torch.optim.LBFGS, max_iter=20, history_size=100, line_search_fn="strong_wolfe"), 750),
):
    solver = PhysicsInformedSingleModelSolver(problem, model, optimizer=optimizer, weighting=weights)
    if FAST:  # measuring
        import dudx.adapters.pina as faster  # measuring

        faster.accelerate(solver)  # measuring
    if watch.seconds < watch.cap:  # measuring
        Trainer(solver, max_epochs=epochs, accelerator="cpu", callbacks=[Watch()], **quiet).train()
watch.write(predict)  # measuring
