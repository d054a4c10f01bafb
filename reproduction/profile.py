"""Profiles: the seeds, settings and sizes of every experiment, read from a TOML file."""

from __future__ import annotations

import functools
import json
import tomllib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dudx.diagnose.recommendation import compared_engines
from dudx.errors import InputError
from dudx.lab.named_objects import look_up
from dudx.lab.problems import problems
from dudx.lab.run.engine_choice import engine_kind
from dudx.lab.run.engine_table import in_table_order
from dudx.lab.run.settings import Settings, make_settings, profile_text


class _Sizes(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Trainings(_Sizes):
    """Training runs of one problem: engines × seeds."""

    engines: list[str] = Field(min_length=1)
    seeds: int = Field(ge=1, description="number of seeds; one has no spread and decides no claim")
    first_seed: int = Field(default=0, ge=0, description="the first seed")
    settings: dict[str, Any] = {}

    def seed_numbers(self, count: int | None = None) -> range:
        """Return the seeds, or this many of them."""
        return range(self.first_seed, self.first_seed + (self.seeds if count is None else count))


class IntervalTrainings(Trainings):
    """Training runs of one problem over several recalibration intervals, in epochs."""

    intervals: list[int] = Field(min_length=3, description="of which the longest is judged by itself")
    every_epoch: dict[str, Any] = Field(
        {}, description="settings of runs that calibrate every epoch, which is expensive"
    )
    dtypes: list[str] | dict[str, int] = Field(
        [], description="number formats, optionally with a number of seeds each; empty: the format of the settings"
    )

    @property
    def formats(self) -> dict[str, int]:
        """Number of seeds by number format."""
        return self.dtypes if isinstance(self.dtypes, dict) else dict.fromkeys(self.dtypes, self.seeds)


class Curves(_Sizes):
    """Curves of the error against the step on fresh networks."""

    networks: int = Field(ge=2)
    width: int = 64
    depth: int = 4
    points: int = 1024
    candidates: int = Field(ge=8)


class CoupledTrainings(Trainings):
    """Training runs of networks whose samples influence each other, by the setting `coupled`."""

    coupled: dict[str, list[str]] | None = Field(
        None, description="engines by the setting `coupled`; by default isolate and ignore"
    )
    only: dict[str, dict[str, Any]] = Field(
        {}, description="settings of a network, of a setting `coupled`, or of both together (`attention fixed`)"
    )


class Discrepancy(_Sizes):
    """Laplacians of pretrained networks whose samples influence each other."""

    networks: int = Field(ge=2)
    epochs: int = Field(gt=0)
    pretraining_batch: int = 256
    points: int = 64
    width: int = 64


class Cost(_Sizes):
    """Time and memory of a training step; batch sizes double from the smallest to the largest."""

    smallest: int = Field(gt=1)
    largest: int = Field(gt=1)
    width: int = 64
    depth: int = 4
    threads: int = 1
    memory_cap: int = Field(description="MiB that a step may take")
    seconds: float = Field(description="duration of each measurement, at least one step")
    compiled: bool = Field(False, description="measure compiled variants too; compilation takes a while each time")
    patience: float = Field(description="seconds per step from which larger batches are skipped")


class Methods(_Sizes):
    """Short trainings by every method, and those of the open questions."""

    problems: list[str] | None = Field(None, description="only these problems")
    methods: list[str] | None = Field(None, description="only these methods")
    seeds: int = Field(3, ge=2)
    steps: int = Field(100, gt=0, description="of the Levenberg-Marquardt method")
    every: int = Field(25, gt=0, description="steps between calibrations")
    width: int = 20
    depth: int = 3
    batch: int = 500
    boundary_batch: int = 200
    initial_batch: int = 100
    dtype: str = "float32"
    formats: int = Field(3, ge=2, description="networks on which the best step of fourth derivatives is measured")
    outcomes: int = Field(16, ge=2, description="seeds of the trainings whose outcomes are counted")
    short: int = Field(3000, gt=0, description="epochs of these trainings")


class Profile(_Sizes):
    """Sizes of a whole reproduction.

    Attributes:
        base: profile of `dudx train` from which the settings of runs start.
        seeds: number of seeds of problems without a table in `accuracy`.
        picture: settings of the run behind figure 1; by default those of Poisson's accuracy table.
        picture_seed: seed of that run.
        results: folder of the result tables in `results`, if not the profile's own name.
    """

    base: str
    seeds: int = Field(2, ge=2)
    curves: Curves
    accuracy: dict[str, Trainings]
    interval: dict[str, IntervalTrainings]
    coupled: CoupledTrainings
    picture: dict[str, Any] | None = None
    picture_seed: int = Field(0, ge=0)
    discrepancy: Discrepancy
    cost: Cost
    methods: Methods = Methods.model_validate({})
    device: Literal["cpu", "cuda"] = "cpu"
    results: str | None = None

    @model_validator(mode="after")
    def _names_exist(self) -> Profile:
        for name in (*self.accuracy, *self.interval):
            look_up(name, problems(), "problem")
        for plan in (*self.accuracy.values(), *self.interval.values(), self.coupled):
            for engine in plan.engines:
                engine_kind(engine)
        return self

    def trainings(self, problem: str) -> Trainings:
        """Return the runs of an accuracy table; by default those with the recommended engines."""
        recommended = in_table_order(kind.name for kind in compared_engines())
        return self.accuracy.get(problem) or Trainings(engines=recommended, seeds=self.seeds)

    def settings(self, problem: str, **chosen: Any) -> Settings:
        """Return the settings of a run; not compiled by default, so that the times of engines compare."""
        common = {"device": self.device, "threads": 1, "compile": False}
        given = {**common, **chosen}
        seed = given.pop("seed", 0)
        # Runs that differ in the seed alone are most of them, and reading profiles takes time.
        return _settings(problem, self.base, json.dumps(given, sort_keys=True)).model_copy(update={"seed": seed})


@functools.cache
def _settings(problem: str, base: str, options: str) -> Settings:
    return make_settings(problem, base, **json.loads(options))


def load(name: str, device: str | None = None) -> Profile:
    """Load a profile by name, or a .toml file; its key `like` names a profile to inherit tables from."""
    text, _ = profile_text(name, "reproduction")
    try:
        values = tomllib.loads(text)
        if (like := values.pop("like", None)) is not None:
            values = {**tomllib.loads(profile_text(str(like), "reproduction")[0]), **values}
        return Profile(**(values if device is None else {**values, "device": device}))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"The profile {name!r} is not valid TOML: {error}.") from error
    except (ValidationError, TypeError) as error:
        raise InputError(f"In the profile {name!r}: {_fault(error)}.") from error


def _fault(error: ValidationError | TypeError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if not place:
        return first["msg"].removeprefix("Value error, ")
    return f"{place} is not right: {first['msg'][0].lower()}{first['msg'][1:]}"
