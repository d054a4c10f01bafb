"""The settings of a run, and the profiles they come from.

A profile is a TOML file. Later sources override earlier ones: its keys at the top, the problem's own defaults, its
table named after the problem, the options of the command line. `base` names another profile for all missing keys.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dudx.errors import InputError
from dudx.lab.atomic_files import read_text
from dudx.lab.named_objects import look_up
from dudx.lab.problems import Problem
from dudx.lab.problems import problem as problem_named
from dudx.lab.run.default_settings import chosen


def _field(default: Any, description: str, panel: str, **limits: Any) -> Any:
    """Declare a setting; `panel` is its heading in the help of the command line."""
    return Field(default, description=description, json_schema_extra={"panel": panel}, **limits)


_chosen = partial(_field, panel="What is solved, and how")
_network = partial(_field, panel="Network")
_loss = partial(_field, panel="Points and loss")
_optimization = partial(_field, panel="Optimization")
_step = partial(_field, panel="Calibration of the step")
_machine = partial(_field, panel="Machine and records")


#: Keys that earlier versions wrote into every run, with the value that stands for what is always done now.
_RETIRED = {"members": 1, "tensorboard": False, "loggers": ""}


class Settings(BaseModel):
    """All settings of a run; runs with equal settings end with equal parameters.

    A limit of `seconds` is the exception: the machine decides how many epochs it allows.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    problem: str = Field(description="a problem that `dudx problems` lists, or your own as package.module:function")
    engine: str = _chosen("ad", "how derivatives are computed; see `dudx engines`, or package.module:Class")
    accuracy: int = _chosen(2, "order of convergence of finite differences", ge=2, le=12, multiple_of=2)
    seed: int = _chosen(..., "seed of the network, the points and the random steps", ge=0)
    coupled: Literal["isolate", "fixed", "running", "ignore"] = _chosen(
        "isolate",
        "networks whose samples influence each other: isolate each sample in its batch; fixed, each sample against the "
        "calibration points; running, normalise by running statistics; or ignore the influence, which is wrong",
    )

    network: str = _network("mlp", "see `dudx networks`, or package.module:Class")
    width: int = _network(128, "neurons in a hidden layer", gt=0)
    depth: int = _network(4, "number of hidden layers, if the network has the option", gt=0, le=10_000)
    spread: float = _network(
        0.0,
        "initialise the first layer with this spread, so that the network bends everywhere; 0: like other layers",
        ge=0,
    )
    initialisation: Literal["xavier", "torch"] = _network(
        "xavier", "initialisation of the mlp: xavier (normal, biases 0), or torch (PyTorch's default for linear layers)"
    )
    rescale: bool | None = _network(None, "map inputs to [-1, 1]; default: the problem decides")

    epochs: int = _optimization(20_000, "optimizer steps", gt=0)
    batch: int = _loss(8192, "points in the interior per step", gt=0)
    boundary_batch: int = _loss(2048, "points on the boundary per step", gt=0)
    initial_batch: int = _loss(2048, "points at the initial time per step", gt=0)
    boundary_mean: Literal["whole", "pieces"] = _loss(
        "whole",
        "average a boundary condition over the whole boundary, or sum one mean per piece: the outer edge, each hole",
    )
    sampling: str = _loss(
        "uniform", "see `dudx samplings`, or package.module:Class; shares as in '0.5 uniform + 0.5 adaptive'"
    )
    resample: int = _loss(1, "epochs between draws of new points", gt=0)
    adaptive_power: float = _loss(
        1.0, "adaptive sampling: the probability is proportional to this power of the residual", gt=0
    )
    adaptive_floor: float = _loss(
        0.1, "adaptive sampling: constant added to every probability, relative to their mean", ge=0
    )
    adaptive_candidates: int = _loss(8, "adaptive sampling: candidates per point", gt=1)
    ramp: float = _loss(0.0, "draw fewer points near the initial time, by (t / (t + ramp))²; 0: uniformly", ge=0)
    weights: Literal["fixed", "auto"] = _loss(
        "fixed",
        "weights of the loss terms: fixed (as given below), or auto (by each term's sensitivity to the parameters)",
    )
    tame: bool = _loss(False, "lm: large residuals count by their size instead of its square, for singular corners")
    weight_boundary: float = _loss(10.0, "λ_BC, the weight of the boundary conditions", ge=0)
    weight_initial: float = _loss(10.0, "λ_IC, the weight of the initial condition", ge=0)
    weight_data: float = _loss(1.0, "the weight of measured data", ge=0)

    optimizer: str = _optimization("adam", "see `dudx optimizers`, or package.module:Class")
    learning_rate: float = _optimization(1e-3, "the initial learning rate", gt=0, le=1e30)
    schedule: Literal["cosine", "constant"] = _optimization(
        "cosine", "schedule of the learning rate: cosine or constant"
    )
    damping: float = _optimization(1e-3, "lm: initial damping", gt=0)
    memory: float = _optimization(0.0, "lm: weight of past batches, for frequent draws of new points", ge=0, lt=1)
    acceleration: bool = _optimization(
        True, "lm: correct steps by the residuals' second derivative (geodesic acceleration)"
    )
    lbfgs_epochs: int = _optimization(0, "a second phase of L-BFGS of this many epochs", ge=0)
    seconds: float | None = _optimization(None, "stop after this many CPU seconds of training", gt=0)
    settled: int = _optimization(
        0, "stop when the loss on new points has fallen by less than a tenth over this many draws; 0: never", ge=0
    )

    compile: bool | Literal["auto"] = _machine(
        False, "use torch.compile; worthwhile in long runs (auto in a profile: for engines that gain from it)"
    )
    chunk: Annotated[int, Field(gt=0)] | Literal["auto", "whole"] = _machine(
        "auto", "points per slice of a batch: a number, auto (by the cache size), or whole"
    )

    recalibrate: int = _step(4000, "epochs between calibrations", gt=0)
    recalibrate_only: bool = _step(
        False,
        "recalibrate at these intervals only; lm would also do so when its damping has changed by a factor of ten",
    )
    calibration_points: int = _step(1024, "points at which the errors of steps are measured", gt=0)
    calibration_candidates: int = _step(50, "number of candidate steps", ge=3, le=10_000)
    calibration_smallest: float | None = _step(None, "smallest step; default: by the number format", gt=0)
    calibration_largest: float | None = _step(None, "largest step; default: by the number format", gt=0)

    evaluate_every: int = _machine(500, "epochs between evaluations of the error", gt=0)
    log_every: int = _machine(20, "epochs between lines of metrics.csv", gt=0)
    checkpoint_every: int = _machine(500, "epochs between checkpoints", gt=0)
    dtype: Literal["float32", "float64"] = _machine("float32", "float32 or float64")
    device: str = _machine("cpu", "cpu or cuda")
    threads: int | None = _machine(None, "CPU threads; default: torch's", gt=0)
    estimate: bool = _machine(
        False, "estimate the error after training, without a reference, in some seconds; not for coupled networks"
    )
    reference_file: str | None = _machine(None, "a COMSOL data file as an additional reference")


def profile_text(profile: str, package: str = "dudx.lab.run") -> tuple[str, str]:
    """Return the text of a profile and its source: one of a package by its name, or a .toml file."""
    path = Path(profile)
    if path.suffix == ".toml":
        return read_text(path, f"The profile {profile!r} cannot be read: there is no such file."), str(path)
    folder = resources.files(package) / "profiles"
    names = sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))
    look_up(profile, dict.fromkeys(names), "profile")
    return (folder / f"{profile}.toml").read_text(encoding="utf-8"), profile


def make_settings(problem: str | Problem, profile: str = "cpu", **options: Any) -> Settings:
    """Return the settings for a problem from the profile, the problem's defaults and the options."""
    text, where = profile_text(profile)
    made, problem = _made(problem)
    name = problem.rpartition(":")[2]
    general, special = _tables(text, where, name)
    if "base" in general:
        before, its_table = _based_on(general.pop("base"), where, name)
        general, special = {**before, **general}, {**its_table, **special}
    if general.pop("by_problem", False) and made is not None:
        general |= chosen(made)
    own = {} if made is None else made.defaults
    given = {key: value for key, value in options.items() if value is not None}
    values = {"seed": 0, **general, **own, **special, **given, "problem": problem}
    if own:
        validated({"seed": 0, **own, "problem": problem}, where=f"the defaults of the problem {problem}")
    return validated(values, text, where, given)


def _tables(text: str, where: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a profile's keys for all problems and its table for this problem."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"The profile {where!r} is not valid TOML: {error}.") from error
    special = tables.get(name, {})
    # If the problem's name is a key and not a table, `validated` reports it.
    return {k: v for k, v in tables.items() if not isinstance(v, dict)}, special if isinstance(special, dict) else {}


def _based_on(base: object, where: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    if not isinstance(base, str):
        raise InputError(f"In {where!r}: base = {base!r} is not the name of a profile.")
    text, place = profile_text(base)
    general, special = _tables(text, place, name)
    if "base" in general:
        raise InputError(f"In {where!r}: the profile {base!r} has a base of its own; name that profile instead.")
    return general, special


def _made(problem: str | Problem) -> tuple[Problem | None, str]:
    """Return a problem and its name; None if it cannot be found, which is reported when it is constructed."""
    if isinstance(problem, Problem):
        return problem, problem.name
    try:
        return problem_named(problem), problem
    except InputError:
        return None, problem


def validated(
    values: Mapping[str, Any], text: str = "", where: str = "settings", given: Mapping[str, Any] | None = None
) -> Settings:
    """Check values and return them as settings, or raise one sentence that names the faulty key and its line."""
    values = {key: value for key, value in values.items() if key not in _RETIRED or _RETIRED[key] != value}
    misread = _misread(values)
    if misread is not None:
        key, problem = misread
    else:
        try:
            return Settings(**values)
        except ValidationError as error:
            fault = error.errors()[0]
            key = str(fault["loc"][0]) if fault["loc"] else "?"
            problem = "there is no such setting" if fault["type"] == "extra_forbidden" else fault["msg"].lower()
    if key in (given or {}):
        raise InputError(f"The option {key} = {values[key]!r} is not right: {problem}.")
    line = _line_of(key, text, str(values.get("problem", "")).rpartition(":")[2])
    place = f"{where!r}, line {line}" if line else repr(where)
    raise InputError(f"In {place}: {key} = {values.get(key)!r} is not right: {problem}.")


def _misread(values: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the key and fault of a value that pydantic would accept: a bool as a number, or unprintable characters."""
    for key, value in values.items():
        annotation = Settings.model_fields[key].annotation if key in Settings.model_fields else bool
        if isinstance(value, bool) and bool not in (annotation, *get_args(annotation)):
            return key, "a bool is not a number or a name"
        if isinstance(value, int) and abs(value) >= 2**63:
            return key, "it is too large"
        if isinstance(value, str) and any(unicodedata.category(letter) in ("Cc", "Cs") for letter in value):
            return key, "it contains unprintable characters"
    return None


def _line_of(key: str, text: str, problem: str) -> int | None:
    """Return the line of a key: in the problem's table, or else before all tables."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if opened := re.match(r"\s*\[\s*[\"']?([^\]\"']+?)[\"']?\s*\]", line):
            table = opened[1]
        elif re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
            found[table] = number
    return found.get(problem, found.get(""))


def literal(text: str) -> Any:
    """Convert a text to a number or bool if it looks like one; else return it unchanged."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def parsed(texts: Sequence[str], with_options: Iterable[str]) -> dict[str, Any]:
    """Parse settings given as KEY=VALUE or KEY=VALUE,VALUE (a list); refuse those with an option of their own."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not key or not values or key in found:
            raise InputError(f"A setting is given once, as KEY=VALUE or KEY=VALUE,VALUE; got {text!r}.")
        if key in ("problem", *with_options):
            raise InputError(f"The {key} has an option of its own; leave out --set {text}.")
        parts = [literal(value) for value in values.split(",")]
        found[key] = parts if len(parts) > 1 else parts[0]
    return found


def to_toml(settings: Settings) -> str:
    """Return the settings as TOML, one key per line, without those that are None."""
    return tomli_w.dumps(settings.model_dump(exclude_none=True))


def from_toml(text: str, where: str) -> Settings:
    """Read settings that `to_toml` wrote."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where!r} is not valid TOML: {error}.") from error
    return validated(values, text, where)
