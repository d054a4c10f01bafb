"""A training run at work: its network, optimizer, engine, random numbers, records and checkpoints."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dudx.engines.difference.engine import Difference
from dudx.errors import InputError
from dudx.lab import storage
from dudx.lab.names import look_up
from dudx.lab.problems import Problem
from dudx.lab.problems.comsol import read_comsol
from dudx.lab.run.engines import make_engine, step_text, steps_of, with_steps
from dudx.lab.run.interruption import stop_request
from dudx.lab.run.metrics import scores
from dudx.lab.run.networks import NETWORKS
from dudx.lab.run.objective import Objective, Part
from dudx.lab.run.optimizers import first_phase, second_phase
from dudx.lab.run.progress import display
from dudx.lab.run.ranks import Alone, Ranks
from dudx.lab.run.settings import Settings
from dudx.lab.run.views import Views

_ROWS_AT_ONCE = 2**14
#: So many curves of calibrations are kept whole, and of further ones the best step: calibrating every epoch of a long
#: run would leave hundreds of megabytes.
_WHOLE_CURVES = 400


class DivergedError(Exception):
    """The loss is not finite."""


def _summary_writer() -> Callable[[str], Any]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError("TensorBoard is not installed: pip install tensorboard, or leave it off.") from error
    return SummaryWriter


class Trainer:
    """One run: its network, optimizer, engine, random numbers and records."""

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        folder: Path,
        ranks: Ranks | None = None,
        saved: Callable[[], None] | None = None,
    ):
        self.problem, self.settings, self.folder = problem, settings, folder
        self.ranks, self.saved = ranks or Alone(), saved
        self.objective = Objective(problem, settings)
        self.device, self.dtype = self.objective.device, self.objective.dtype
        torch.manual_seed(settings.seed)
        self.generator = torch.Generator(self.device).manual_seed(settings.seed)
        # A stream of its own: the points are the same whatever the engine draws.
        self.engine_generator = torch.Generator(self.device).manual_seed(settings.seed + 2**32)
        self.model = self._network().to(self.device, self.dtype)
        self.engine = make_engine(
            settings.engine, settings.accuracy, self.engine_generator, ignoring=settings.coupled == "ignore"
        )
        self.unknowns = nn.ParameterDict(dict(problem.unknowns or {})).to(self.device, self.dtype)
        self.parameters = [*self.model.parameters(), *self.unknowns.parameters()]
        self.optimizer, self.schedule = first_phase(settings, self.parameters)
        self.lbfgs = second_phase(self.parameters) if settings.lbfgs_epochs else None
        self.calibration_points = problem.domain.sobol(
            settings.calibration_points, settings.seed, self.device, self.dtype
        )
        self.views = Views(self.model, self.calibration_points, isolating=self.engine.coupled == "refuse")
        self.ranks.same_start(self.model, self.unknowns, self.calibration_points)
        self.solution = problem.solution() if problem.solution else None
        self.file_reference = (
            read_comsol(settings.reference_file, len(problem.inputs)) if settings.reference_file else None
        )
        self.epochs = settings.epochs + settings.lbfgs_epochs
        self.epoch = 0
        self.seconds = 0.0
        self.calibrations: list[dict[str, Any]] = []
        self.recent: dict[str, float] = {}
        self.rows: int | None = None
        self.make_writer = _summary_writer() if settings.tensorboard else None

    def _network(self) -> nn.Module:
        maker = look_up(self.settings.network, NETWORKS, "network")
        rescaled = self.problem.rescaled if self.settings.rescale is None else self.settings.rescale
        bounds = self.problem.domain.bounds if rescaled else None
        shape: dict[str, Any] = {"width": self.settings.width, "bounds": bounds}
        if self.settings.network == "mlp":
            shape["depth"] = self.settings.depth
        try:
            return maker(len(self.problem.inputs), self.problem.outputs, **shape)
        except TypeError as error:
            raise InputError(
                f"The network {self.settings.network!r} cannot be made from (inputs, outputs, "
                f"{', '.join(f'{key}=...' for key in shape)}): {error}."
            ) from error

    # -- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Train to the last epoch; interrupted or diverged, leave the folder so that nothing is lost."""
        columns = [
            "epoch",
            "loss",
            *self.objective.names,
            "learning_rate",
            "step",
            "l2_relative",
            "smape",
            "max_error",
            "seconds",
            *self.unknowns,
        ]
        self.table = storage.Table(self.folder / "metrics.csv", columns, keep=self.rows)
        if self.epoch == 0:
            self.save()
        self.began = time.perf_counter() - self.seconds
        status = "finished"
        try:
            with stop_request() as stop, display(self.settings.problem, self.epochs, self.epoch) as shown:
                while self.epoch < self.epochs and status == "finished":
                    self._epoch()
                    shown.update(self.epoch, self._facts())
                    if self.ranks.any(stop()):
                        status = "interrupted"
                        self.save()
                    elif self.epoch % self.settings.checkpoint_every == 0:
                        self.save()
        except DivergedError:
            status = "diverged"
        reached = self.epoch
        if status == "finished":
            self.save()
        elif status == "diverged":  # what is left to look at is the last network that was saved
            self.load(storage.read_checkpoint(self.folder / "checkpoint.pt"))
        return self._result(status, reached)

    def _epoch(self) -> None:
        if self.epoch % self.settings.recalibrate == 0:
            self.calibrate()
        parts = self.objective.draw(self.generator)
        in_first_phase = self.epoch < self.settings.epochs
        learning_rate = self.optimizer.param_groups[0]["lr"] if in_first_phase else 1.0
        loss, by_name = self._first_step(parts) if in_first_phase else self._second_step(parts)
        self.epoch += 1
        self.seconds = time.perf_counter() - self.began
        evaluating = self.epoch % self.settings.evaluate_every == 0 or self.epoch == self.epochs
        if evaluating or self.epoch % self.settings.log_every == 0 or self.epoch == 1:
            self.recent |= {"loss": loss, **{name: float(value) for name, value in by_name.items()}}
            self._record(learning_rate, self.evaluate()[1] if evaluating else {})

    def _first_step(self, parts: list[Part]) -> tuple[float, Mapping[str, Tensor]]:
        loss, by_name = self._gradient(self.optimizer, parts)
        self.optimizer.step()
        self.schedule.step()
        return loss, by_name

    def _second_step(self, parts: list[Part]) -> tuple[float, Mapping[str, Tensor]]:
        assert self.lbfgs is not None
        # The line search compares losses, so every look at the batch must use the same random steps.
        state = self.engine_generator.get_state()
        seen: list[tuple[float, Mapping[str, Tensor]]] = []

        def closure() -> float:
            self.engine_generator.set_state(state)
            seen.append(self._gradient(self.lbfgs, parts))
            return seen[-1][0]

        self.lbfgs.step(closure)  # type: ignore[arg-type]
        return seen[0]

    def _gradient(
        self, optimizer: torch.optim.Optimizer | None, parts: list[Part]
    ) -> tuple[float, Mapping[str, Tensor]]:
        assert optimizer is not None
        optimizer.zero_grad(set_to_none=True)
        total, by_name = self.ranks.gradient(self._share, parts, self.parameters, self.engine_generator)
        loss = float(total)
        if not np.isfinite(loss):
            raise DivergedError
        return loss, by_name

    def _share(self, parts: list[Part]) -> tuple[Tensor, Mapping[str, Tensor]]:
        return self.objective.gradient(self.views.training([part.points for part in parts]), parts, self.engine)

    def calibrate(self) -> None:
        """Set the engine's steps for the network as it is now, and record the curves."""
        if not isinstance(self.engine, Difference):
            return
        s = self.settings
        # Points of a generator of its own: which derivatives occur does not depend on them.
        parts = self.objective.draw(torch.Generator(self.device).manual_seed(s.seed))
        self.engine = self.engine.calibrated(
            self.views.calibration(),
            self.calibration_points,
            self.objective.derivatives(parts),
            candidates=s.calibration_candidates,
            smallest=s.calibration_smallest,
            largest=s.calibration_largest,
        )
        for order, found in self.engine.calibrations.items():
            curve = {"steps": found.steps, "rmse": found.rmse, "max_error": found.max_error}
            if len(self.calibrations) >= _WHOLE_CURVES:
                at = int(np.argmin(found.rmse))
                curve = {name: values[at : at + 1] for name, values in curve.items()}
            lists = {name: values.tolist() for name, values in curve.items()}
            self.calibrations.append({"epoch": self.epoch, "order": order, "step": found.step, **lists})
        self.engine = with_steps(self.engine, self.ranks.same(steps_of(self.engine)))

    # -- records -------------------------------------------------------------------------------------------------

    def predict(self, points: np.ndarray) -> np.ndarray:
        """The network's output at some points, in evaluation mode."""
        self.model.eval()
        model = self.views.evaluation()
        with torch.no_grad():
            slices = torch.from_numpy(np.ascontiguousarray(points)).split(_ROWS_AT_ONCE)
            values = [model(rows.to(self.device, self.dtype)).cpu() for rows in slices]
        self.model.train()
        return torch.cat(values).double().numpy()

    def evaluate(self) -> tuple[np.ndarray | None, dict[str, float]]:
        """The prediction at the reference's points and its scores; nothing where there is no reference."""
        if self.solution is None:
            return None, {}
        prediction = self.predict(self.solution.points)
        found = scores(prediction, self.solution.values)
        self.recent |= found
        return prediction, found

    def _record(self, learning_rate: float, found: Mapping[str, float]) -> None:
        row = {name: self.recent.get(name) for name in ("loss", *self.objective.names)}
        unknown = {name: float(value.detach()) for name, value in self.unknowns.items()}
        self.table.append(
            {
                "epoch": self.epoch,
                **row,
                "learning_rate": learning_rate,
                "step": step_text(self.engine),
                **found,
                "seconds": round(self.seconds, 3),
                **unknown,
            }
        )
        if self.make_writer is not None:
            for name, value in {**row, **found, **unknown}.items():
                if value is not None:
                    self.writer.add_scalar(name, value, self.epoch)
            self.writer.flush()

    @functools.cached_property
    def writer(self) -> Any:
        """Of TensorBoard's events; made when the first are written, since it makes the folder."""
        assert self.make_writer is not None
        return self.make_writer(str(self.folder))

    def _facts(self) -> dict[str, str]:
        facts = {name: f"{self.recent[name]:.1e}" for name in ("loss", *self.objective.names) if name in self.recent}
        if "l2_relative" in self.recent:
            facts["L2"] = f"{100 * self.recent['l2_relative']:.2f}%"
        if step_text(self.engine):
            facts["step"] = step_text(self.engine)
        facts |= {name: f"{float(value.detach()):.5g}" for name, value in self.unknowns.items()}
        return facts

    def _result(self, status: str, reached: int) -> dict[str, Any]:
        prediction, found = self.evaluate()
        if self.solution is not None and prediction is not None:
            storage.write_arrays(
                self.folder / "prediction.npz",
                points=self.solution.points.astype(np.float32),
                prediction=prediction.astype(np.float32),
                reference=self.solution.values.astype(np.float32),
            )
        result: dict[str, Any] = {
            "problem": self.settings.problem,
            "engine": self.settings.engine,
            "seed": self.settings.seed,
            "epochs": self.epoch,
            "status": status,
            "l2_relative": None,
            "smape": None,
            "max_error": None,
            **found,
            "seconds": self.seconds,
            "loss": self.recent.get("loss"),
            "step": step_text(self.engine) or None,
            "optimizer": self.settings.optimizer,
            "calibrations": len(self.calibrations),
            "compile_seconds": self.objective.compile_seconds,
            "parameters": sum(p.numel() for p in self.parameters),
        }
        if status == "diverged":
            result["diverged_at"] = reached
        if self.unknowns:
            result["unknowns"] = {name: float(value.detach()) for name, value in self.unknowns.items()}
        if self.file_reference is not None:
            points, values = self.file_reference
            result["file_reference"] = scores(self.predict(points), values)
        storage.write_json(self.folder / "result.json", result)
        return result

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the checkpoint and the calibrations so far."""
        storage.write_json(self.folder / "calibrations.json", self.calibrations)
        storage.write_checkpoint(
            self.folder / "checkpoint.pt",
            {
                "problem": self.settings.problem,
                "epoch": self.epoch,
                "seconds": self.seconds,
                "rows": self.table.rows,
                "recent": dict(self.recent),
                "model": self.model.state_dict(),
                "unknowns": self.unknowns.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(),
                "lbfgs": self.lbfgs.state_dict() if self.lbfgs else None,
                "generator": self.generator.get_state(),
                "engine_generator": self.engine_generator.get_state(),
                "global_generator": torch.get_rng_state(),
                "cuda_generator": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
                "steps": steps_of(self.engine),
                "calibrations": len(self.calibrations),
            },
        )
        if self.saved is not None:
            self.saved()

    def load(self, state: Mapping[str, Any]) -> None:
        """Take up the state that `save` wrote."""
        if state.get("problem") != self.settings.problem:
            raise InputError(
                f"The checkpoint is of the problem {state.get('problem')!r}, not {self.settings.problem!r}; resume it "
                "in its own folder."
            )
        try:
            self.model.load_state_dict(state["model"])
            self.unknowns.load_state_dict(state["unknowns"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.schedule.load_state_dict(state["schedule"])
            if self.lbfgs is not None:
                self.lbfgs.load_state_dict(state["lbfgs"])
            self.epoch, self.seconds, self.rows = state["epoch"], state["seconds"], state["rows"]
            self.recent = dict(state["recent"])
            self.generator.set_state(state["generator"])
            self.engine_generator.set_state(state["engine_generator"])
            torch.set_rng_state(state["global_generator"])
            if state["cuda_generator"] is not None and self.device.type == "cuda":
                torch.cuda.set_rng_state(state["cuda_generator"], self.device)
            self.engine = with_steps(self.engine, state["steps"])
            count = state["calibrations"]
        except (KeyError, RuntimeError, ValueError, TypeError) as error:
            raise InputError(f"The checkpoint does not fit the settings: {str(error).splitlines()[0]}.") from error
        recorded = storage.read_json(self.folder / "calibrations.json") if count else []
        self.calibrations = recorded[:count]
