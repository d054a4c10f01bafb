"""One run in stages: a network for the whole domain and, where its training is lost, networks for windows of time."""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dudx.errors import percent
from dudx.lab.problems import Problem
from dudx.lab.run.checkpoint import Checkpoint
from dudx.lab.run.engine_table import step_text
from dudx.lab.run.error_estimate import Estimate
from dudx.lab.run.evaluation import reference_arrays, scored
from dudx.lab.run.loop import Loop
from dudx.lab.run.phases import DivergedError
from dudx.lab.run.settings import Settings
from dudx.lab.run.stopping import Stopping
from dudx.lab.run.trained_networks import rebuilt, write_trained
from dudx.lab.run.trainer import Trainer
from dudx.lab.solving.budgeted_estimates import PROBE, QUICK, BudgetedEstimates
from dudx.lab.solving.progress import Callbacks, Progress
from dudx.lab.solving.stage import Stage
from dudx.lab.solving.time_windows import (
    can_be_cut,
    joined,
    networks_and_spans,
    rebuilt_windows,
    warm_start,
    window_problem,
)

#: A window is accepted with an error below the first; the next one is longer with an error below the second; training
#: of a window ends with an error below the third.
_GOOD, _VERY_GOOD, _DONE = 1e-3, 1e-4, 1e-6
#: Lengths of the first and of the shortest window, as shares of all time.
_FIRST, _SHORTEST = 1 / 4, 1 / 128
#: Steps per remaining window that the budget must allow before one is halved; draws until a window's loss has settled.
_LEAST_STEPS, _SETTLED = 20, 40


class StagedRun(Loop):
    """Train one network and estimate its error on the way; where training is lost, continue with windows of time.

    All stages share one folder, one table, one checkpoint and one budget of CPU seconds.

    Args:
        windows: True starts with windows, False never uses them, None decides by the estimates.
        enough: the estimated error at which training ends.
        callbacks: called after steps and estimates, and with sentences for the user.
        quiet: show no progress.
        stop: returns True once the run is to stop.
        clock: the process time from which on CPU seconds count; by default now.
        start: a network and constants to start from, if any.
    """

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        folder: Path,
        windows: bool | None,
        enough: float,
        callbacks: Callbacks,
        quiet: bool = False,
        stop: Callable[[], bool] | None = None,
        clock: float | None = None,
        start: tuple[nn.Module, Mapping[str, float]] | None = None,
    ):
        self._clock = time.process_time() if clock is None else clock
        self.problem, self.settings, self.folder, self.title = problem, settings, folder, problem.title
        self.quiet, self.stop, self.saved, self._callbacks, self._report = (
            quiet,
            stop,
            None,
            callbacks,
            callbacks.report,
        )
        self._options = {"windows": windows, "enough": enough}
        self._cuttable, self._axis = windows is not False and can_be_cut(problem), problem.time or 0
        self.epochs, self.limit = sys.maxsize, settings.seconds or math.inf
        self.stopping = Stopping(0, settings.seconds)
        self.reason: str | None = None
        #: The network of the whole domain, once windows have taken over.
        self.whole: nn.Module | None = None
        self.networks: list[nn.Module] = []
        self.accepted: list[dict[str, float]] = []
        #: The latest estimate of the whole domain's network.
        self.estimate: dict[str, Any] | None = None
        self.estimates = BudgetedEstimates(self.limit, enough)
        #: CPU seconds of building a window's trainer, and of a step.
        self.setup = self.step_seconds = 0.0
        #: The parameters before the present step, which an interrupt may leave half done.
        self._before: list[Tensor] = []
        self.trainer = Trainer(problem, settings, folder)
        if start is not None:
            self.trainer.start_from(*start)
        self.records = self.trainer.records
        self.records.more = ("estimate",)
        self.stage = Stage(0, 0.0, 0.0, 0.0, self.limit)
        if self._cuttable:
            low, high = self._times = tuple(corner[self._axis] for corner in problem.domain.bounds)
            later = window_problem(problem, low, high, self.trainer.model)
            names = [*self.records.losses, *(condition.name for condition in later.conditions)]
            self.records.losses = tuple(dict.fromkeys(names))
            self.records.more = ("window", "estimate")
        self.checkpoint = Checkpoint(folder, settings.problem, {"staged": self, "records": self.records})
        if windows:
            self._abandon(None)

    def state_dict(self) -> dict[str, Any]:
        parts = {name: dict(p.state_dict()) for name, p in self.trainer.checkpoint.parts.items() if name != "records"}
        return {
            "epoch": self.epoch, "seconds": self.seconds, "cpu_seconds": self.stopping.spent, "options": self._options,
            "stage": asdict(self.stage), "reason": self.reason, "cost": self.estimates.quick_seconds,
            "setup": self.setup, "whole": None if self.whole is None else self.whole.state_dict(),
            "networks": [network.state_dict() for network in self.networks], "accepted": self.accepted,
            "estimate": self.estimate, "offset": self.records.offset, "trainer": parts,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        if state["options"] != self._options:
            raise ValueError(f"it was started with {', '.join(f'{k} = {v!r}' for k, v in state['options'].items())}")
        self.epoch, self.seconds, self.stopping.spent = state["epoch"], state["seconds"], state["cpu_seconds"]
        self.stage, self.reason = Stage(**state["stage"]), state["reason"]
        self.estimates.quick_seconds, self.setup, self.estimate = state["cost"], state["setup"], state["estimate"]
        self.accepted = [dict(window) for window in state["accepted"]]
        if state["whole"] is not None:
            self.whole = rebuilt(self.problem, self.settings, state["whole"]).to(self.trainer.device)
        spans = [(window["from"], window["to"]) for window in self.accepted]
        windows = rebuilt_windows(self.problem, self.settings, state["networks"], spans)
        self.networks = [network.to(self.trainer.device) for network in windows]
        if self.stage.number:
            self.trainer = self._window_trainer(self.stage)
        elif self.trainer.problem is not self.problem:
            self.trainer = Trainer(self.problem, self.settings, self.folder, records=self.records)
        self.records.offset = state["offset"]
        for name, part in self.trainer.checkpoint.parts.items():
            if name != "records":
                part.load_state_dict(state["trainer"][name])

    @property
    def _over(self) -> str | None:
        return self.reason

    def _epoch(self) -> None:
        trainer, began = self.trainer, time.process_time()
        self._before = [parameter.detach().clone() for parameter in trainer.parameters]
        try:
            report = trainer.advance()
        except DivergedError:
            report = None
        self._before = []
        self._count(self._clock)
        self._clock = time.process_time()
        if report is None:
            return self._after_divergence()
        trainer.epoch += 1
        taken = self._clock - began
        self.step_seconds = 0.7 * self.step_seconds + 0.3 * taken if self.step_seconds else taken
        if self.estimates.possible(self.trainer) and not self.estimates.quick_seconds:
            self.estimates(self.trainer, PROBE)
        reason, check = self._stage_over(), self._check()
        due = reason is not None or check is not None
        found = self.estimates.assessed(trainer, bool(self.stage.number), reason is not None) if due else None
        evaluating = due or self.epoch % self.settings.evaluate_every == 0
        window = {"window": self.stage.number} if self._cuttable else {}
        self._now()
        self._log(report, evaluating, **window, estimate=None if found is None else found.relative_l2)
        stage, error = self.stage, self.stage.error if found is None else found.relative_l2
        now = Progress(
            self.epoch, report.loss, report.by_name, self.stopping.spent, error if math.isfinite(error) else None,
            self.records.unknowns, (stage.start, stage.end) if stage.number else None, trainer.model,
        )  # fmt: skip
        ended = self._callbacks.stop_after(found is not None, now)
        if ended and not due:
            due, found = True, self.estimates.assessed(trainer, bool(stage.number), True)
        del trainer  # a window that begins releases it
        if due:
            self._decide(reason, check, found)
        if ended:
            self.reason = "callback"

    def _now(self) -> float:
        """Return the CPU seconds of the run so far, everything included."""
        now = time.process_time()
        self.stopping.spent, self._clock = self.stopping.spent + now - self._clock, now
        return self.stopping.spent

    def _stage_over(self) -> str | None:
        """Return the reason to end the stage, or None."""
        trainer = self.trainer
        if trainer.epoch >= trainer.epochs:
            return "epochs"
        if trainer.epoch % self.settings.resample:
            return None  # the first step with new points errs
        last = self.estimates.seconds(QUICK if self.stage.number else self.estimates.careful)
        ahead = self.settings.resample * self.step_seconds + last
        if self._now() + ahead > self.stage.began + self.stage.budget:
            return "seconds"
        return trainer.stopping.reason

    def _check(self) -> float | None:
        """Return the error above which training is lost if an estimate is due now, else None."""
        stage = self.stage
        slow = stage.number and self.estimates.seconds(QUICK) > 0.1 * stage.budget
        if slow or not self.estimates.possible(self.trainer):
            return None
        return stage.check(max((self._now() - stage.began) / stage.budget, self.trainer.epoch / self.trainer.epochs))

    def _decide(self, reason: str | None, check: float | None, found: Estimate | None) -> None:
        """End the run, go on, or change to another window, by the latest estimate."""
        stage, error = self.stage, math.inf if found is None else found.relative_l2
        # Windows do not remove a singular start, which affects early times only.
        late = found is not None and not stage.number and self.problem.starts_with_jump
        lost = stage.is_lost(found.late if late and found is not None else error, self.trainer.epoch, check)
        stage.error = error
        if stage.number:
            can_halve = self._can_halve()
            if error < _DONE or (reason is not None and (error <= _GOOD or not can_halve)):
                self._accept()
            elif can_halve and (reason is not None or lost):
                self._begin_window(stage.start, stage.length / 2)
            return
        self.estimate = None if found is None else asdict(found)
        if self._cuttable and reason != "seconds" and found is not None and lost:
            self._report(f"One network loses the solution (estimated error {percent(error)}): using windows of time.")
            self._abandon(self.trainer.model)
        else:
            self.reason = "enough" if error < self._options["enough"] else reason

    def _after_divergence(self) -> None:
        if self.stage.number and self._can_halve():
            self._begin_window(self.stage.start, self.stage.length / 2)
        elif self.stage.number and self.whole is not None:
            self.reason = "a window diverged"
        elif not self.stage.number and self._cuttable:
            self._report("The loss of one network is not finite: using windows of time.")
            self._abandon(None)
        else:
            raise DivergedError

    # -- windows of time -----------------------------------------------------------------------------------------

    def _abandon(self, network: nn.Module | None) -> None:
        """Continue with windows; keep the network in case they do worse."""
        self.whole = None if network is None else network.eval()
        low, high = self._times
        self._begin_window(low, _FIRST * (high - low))

    def _least(self) -> float:
        """Return the least CPU seconds of a window."""
        return self.setup + self.estimates.seconds(QUICK) + _LEAST_STEPS * self.step_seconds

    def _can_halve(self) -> bool:
        """Return True if half a window is not too short, and the budget allows as many windows as there are then."""
        (low, high), half = self._times, self.stage.length / 2
        count = math.ceil((high - self.stage.start) / half)
        return half > 0.99 * _SHORTEST * (high - low) and count * self._least() < self.limit - self._now()

    def _begin_window(self, start: float, length: float) -> None:
        """Train a window from `start`, with its share of the CPU seconds left."""
        began, high = self._now(), self._times[1]
        left = max(self.limit - began, 0.0)
        last = start + 1.25 * length > high or left < 2 * self._least()
        end = high if last else start + length
        number, budget = len(self.networks) + 1, max(left * (end - start) / (high - start), 1e-6)
        stage = Stage(number, start, end, began, budget)
        trainer = self._window_trainer(stage)
        if self.networks:
            warm_start(trainer.model, self.networks[-1])
        self.records.offset = self.epoch
        self.records.recent.clear()
        self.stage, self.trainer = stage, trainer
        gc.collect()  # the last trainer's matrices, which closures refer to in circles
        self.setup = self._now() - began

    def _window_trainer(self, stage: Stage) -> Trainer:
        before = self.networks[stage.number - 2] if stage.number > 1 else None
        settings = self.settings.model_copy(update={"settled": _SETTLED})
        problem = window_problem(self.problem, stage.start, stage.end, before)
        return Trainer(problem, settings, self.folder, records=self.records)

    def _accept(self) -> None:
        """Keep the window's network and continue with the next window, or end."""
        stage, name = self.stage, self.problem.inputs[self._axis]
        self.networks.append(self.trainer.model.eval())
        window = {"from": stage.start, "to": stage.end, "estimate": stage.error, "steps": self.trainer.epoch}
        self.accepted.append(window)
        place = f"{name} from {stage.start:.4g} to {stage.end:.4g}"
        self._report(f"{place}: estimated error {percent(stage.error)}, {self._now():.0f} CPU seconds")
        if stage.end >= self._times[1]:
            self.reason = "end of the last window"
        else:
            self._begin_window(stage.end, stage.length * (1.5 if stage.error < _VERY_GOOD else 1.0))

    def run(self) -> dict[str, Any]:
        """Train to the end; an interrupt returns the best network so far."""
        try:
            return super().run()
        except KeyboardInterrupt:
            with torch.no_grad():
                for parameter, value in zip(self.trainer.parameters, self._before, strict=False):
                    parameter.copy_(value)
            return self._result("interrupted", self.epoch, "")

    def _facts(self) -> dict[str, str]:
        where = {"window": f"{self.stage.start:.4g} to {self.stage.end:.4g}"} if self.stage.number else {}
        return where | self.trainer._facts()

    def _scores(self) -> Mapping[str, float]:
        return self.trainer.evaluation.scores()

    def _result(self, status: str, reached: int, stopped: str) -> dict[str, Any]:
        self._now()
        self.network, found, windows = self._best()
        facts = {
            **self._ending(status, reached, stopped),
            "step": step_text(self.trainer.engine) or None,
            "compile_seconds": self.trainer.objective.compile_seconds,
            "parameters": sum(parameter.numel() for parameter in self.network.parameters()),
            "estimate": found,
            **({"windows": windows} if windows else {}),
        }
        own = self.network is self.trainer.model
        if own:
            self.network = self.trainer.views.trained()
        write_trained(self.folder, self.problem, *networks_and_spans(self.network))
        arrays = self.trainer.evaluation.arrays() if own else reference_arrays(self.problem, self.network)
        return self.records.write_result(scored(arrays), arrays, facts)

    def _best(self) -> tuple[nn.Module, dict[str, Any] | None, list[dict[str, float]]]:
        """Return the best network so far, its estimate, and its windows if it has any."""
        if not self.stage.number:
            return self.trainer.model, self.estimate, []
        end = self._times[1]
        network, total = joined(self.networks, self.accepted, self.trainer.model, self.stage, end, self._axis)
        if self.whole is not None and not (total and self.estimate and total < self.estimate["relative_l2"]):
            # Lost: around a wrong trajectory estimates are too small (Lorenz' equations: 2.9 %, the error was 93 %).
            self._report("No error estimate: the one network lost the solution. Allow more CPU seconds for windows.")
            return self.whole, None, []
        return network, None if total is None else {"relative_l2": total}, self.accepted
