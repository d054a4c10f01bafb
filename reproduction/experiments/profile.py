"""How large a reproduction is: the seeds, settings and sizes of every experiment, read from a TOML file."""

from __future__ import annotations

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
    seeds: int = Field(ge=1, description="how many; one has no spread and decides no claim")
    first_seed: int = Field(default=0, ge=0, description="seeds are counted from this one")
    settings: dict[str, Any] = {}

    def seed_numbers(self, count: int | None = None) -> range:
        """The seeds, or so many of them."""
        return range(self.first_seed, self.first_seed + (self.seeds if count is None else count))


class IntervalTrainings(Trainings):
    """The same over some recalibration intervals, in epochs."""

    intervals: list[int] = Field(min_length=3, description="the longest is looked at by itself")
    every_epoch: dict[str, Any] = Field({}, description="settings of runs that calibrate every epoch, to be cheaper")
    dtypes: list[str] | dict[str, int] = Field(
        [], description="number formats, perhaps with a number of seeds each; none for that of the settings"
    )

    @property
    def formats(self) -> dict[str, int]:
        """How many seeds each number format has."""
        return self.dtypes if isinstance(self.dtypes, dict) else dict.fromkeys(self.dtypes, self.seeds)


class Curves(_Sizes):
    """Error against step on fresh networks."""

    networks: int = Field(ge=2)
    width: int = 64
    depth: int = 4
    points: int = 1024
    candidates: int = Field(ge=8)


class CoupledTrainings(Trainings):
    """Runs of networks whose samples influence each other, by what is done about it."""

    ways: dict[str, list[str]] | None = Field(None, description="the engines of each way; else isolated and ignored")
    only: dict[str, dict[str, Any]] = Field(
        {}, description="settings of one network, of one way, or of a network seen in a way (`attention fixed`)"
    )


class Discrepancy(_Sizes):
    """Derivatives of networks whose samples influence each other, after pretraining."""

    networks: int = Field(ge=2)
    epochs: int = Field(gt=0)
    pretraining_batch: int = 256
    points: int = 64
    width: int = 64


class Cost(_Sizes):
    """Time and memory of a training step: batches double from the smallest to the largest."""

    smallest: int = Field(gt=1)
    largest: int = Field(gt=1)
    width: int = 64
    depth: int = 4
    threads: int = 1
    memory_cap: int = Field(description="MiB that a step may take")
    seconds: float = Field(description="how long each point is measured, at least one step")
    compiled: bool = Field(False, description="also what is compiled, which takes a while each time")
    patience: float = Field(description="larger batches are not tried once a step takes this many seconds")


class Methods(_Sizes):
    """Trainings of seconds by every method, and of questions that need many of them."""

    problems: list[str] | None = Field(None, description="these alone, where there are more")
    methods: list[str] | None = Field(None, description="these alone")
    seeds: int = Field(3, ge=2)
    steps: int = Field(100, gt=0, description="of Levenberg and Marquardt's method")
    every: int = Field(25, gt=0, description="steps between calibrations")
    width: int = 20
    depth: int = 3
    batch: int = 500
    boundary_batch: int = 200
    initial_batch: int = 100
    dtype: str = "float32"
    formats: int = Field(3, ge=2, description="networks on which steps of fourth derivatives are searched")
    outcomes: int = Field(16, ge=2, description="seeds of short trainings whose outcomes are counted")
    short: int = Field(3000, gt=0, description="epochs of these")


class Profile(_Sizes):
    """Everything a reproduction needs to know."""

    #: The profile of `dudx train` from which the settings of runs start.
    base: str
    seeds: int = Field(2, ge=2, description="of problems without a table in accuracy")
    curves: Curves
    accuracy: dict[str, Trainings]
    interval: dict[str, IntervalTrainings]
    coupled: CoupledTrainings
    #: The settings of the run behind figure 1, whose network is needed; else those of Poisson's table.
    picture: dict[str, Any] | None = None
    discrepancy: Discrepancy
    cost: Cost
    methods: Methods = Methods.model_validate({})
    device: Literal["cpu", "cuda"] = "cpu"
    #: A folder of runs that ended, seen from that of the reproduction; see `reproduction.archive`.
    archive: str | None = None

    @model_validator(mode="after")
    def _names_what_there_is(self) -> Profile:
        for name in (*self.accuracy, *self.interval):
            look_up(name, problems(), "problem")
        for plan in (*self.accuracy.values(), *self.interval.values(), self.coupled):
            for engine in plan.engines:
                engine_kind(engine)
        return self

    def trainings(self, problem: str) -> Trainings:
        """The runs of an accuracy table; one that the profile has no table for has the engines recommended."""
        recommended = in_table_order(kind.name for kind in compared_engines())
        return self.accuracy.get(problem) or Trainings(engines=recommended, seeds=self.seeds)

    def settings(self, problem: str, **chosen: Any) -> Settings:
        """The settings of a run; without compilation unless it is asked for, so that the times of engines compare."""
        common = {"device": self.device, "threads": 1, "compile": False}
        return make_settings(problem, self.base, **{**common, **chosen})


def load(name: str, device: str | None = None) -> Profile:
    """A profile that comes with the package, or a .toml file of your own; `like` names one for what it leaves out."""
    text, _ = profile_text(name, "reproduction.experiments")
    try:
        values = tomllib.loads(text)
        if (like := values.pop("like", None)) is not None:
            values = {**tomllib.loads(profile_text(str(like), "reproduction.experiments")[0]), **values}
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
