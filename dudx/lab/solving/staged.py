"""Training in parts, with a look at the estimated error after each: enough, lost, or on with it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dudx.lab.problems import Problem
from dudx.lab.run.error_estimate import estimate
from dudx.lab.run.settings import Settings
from dudx.lab.run.trainer import Trainer
from dudx.lab.run.training import trained

#: Directions among which the error is estimated in passing.
_GLANCE = 400
#: No network has lost its way before so many steps.
_FIRST_STEPS = 100


@dataclass(frozen=True)
class Found:
    """What one network came to, its estimated error (inf where there is none), and whether it has lost its way."""

    result: dict[str, Any]
    trainer: Trainer
    folder: Path
    error: float
    lost: bool


def train_and_look(
    problem: Problem,
    made: Settings,
    folder: Path,
    seconds: float,
    enough: float,
    looks: Sequence[tuple[float, float]],
    careful: bool = True,
) -> Found:
    """Train one network for some CPU seconds, which looking counts in.

    Args:
        problem: what is solved.
        made: how.
        folder: where each part has a folder of its own.
        seconds: for all parts together, about.
        enough: the estimated error that ends it.
        looks: after which shares of the seconds to look, the last one about 1, and above which error to give up there.
        careful: whether the last estimate is among many directions, which finds more.
    """
    spent, steps = 0.0, 0
    before: Trainer | None = None
    result: dict[str, Any] = {}
    for number, (share, lost_above) in enumerate(looks):
        began, place = time.process_time(), folder / f"look-{number}"
        until = made.model_copy(update={"seconds": max(share * seconds - spent, 0.02 * seconds), "estimate": False})
        begin = None if before is None else _going_on_from(before, result.get("unknowns", {}))
        result, before = trained(until, place, problem=problem, begin=begin)
        over = result["status"] != "finished" or result["stopped"] != "seconds" or number == len(looks) - 1
        error, lost = math.inf, math.isfinite(lost_above) and result["status"] == "diverged"
        if result["status"] == "finished":
            error = _estimate(result, before, _GLANCE)
            lost = error > lost_above and steps + result["epochs"] >= _FIRST_STEPS
            if careful and not lost and (over or error < enough):
                error = _estimate(result, before)
        spent, steps = spent + time.process_time() - began, steps + result["epochs"]
        result |= {"cpu_seconds": spent, "epochs": steps}
        if lost or over or error < enough:
            return Found(result, before, place, error, lost)
    raise AssertionError("the last look is the end")


def _estimate(result: dict[str, Any], trainer: Trainer, directions: int | None = None) -> float:
    """The estimated error of a network, also noted in the result."""
    if trainer.views.isolating:  # of one whose samples are isolated there is none
        result["estimate"] = None
        return math.inf
    chosen = {} if directions is None else {"directions": directions}
    found = estimate(trainer.problem, trainer.model, trainer.engine, seed=trainer.settings.seed, **chosen)
    result["estimate"] = asdict(found)
    return found.relative_l2


def _going_on_from(before: Trainer, unknowns: Mapping[str, float]) -> Callable[[Trainer], None]:
    """Begin with another run's network, the constants it found and what its optimizer knows."""

    def begin(trainer: Trainer) -> None:
        trainer.model.load_state_dict(before.model.state_dict())
        for name, value in unknowns.items():  # a new trainer starts them anew
            trainer.unknowns[name].data.fill_(value)
        for name, part in trainer.first.stateful.items():
            part.load_state_dict(before.first.stateful[name].state_dict())
        trainer.generator.set_state(before.generator.get_state())

    return begin
