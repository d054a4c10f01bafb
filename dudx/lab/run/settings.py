"""The settings of a run, and the profiles they come from.

A profile is a TOML file: keys at the top are defaults, which a problem may override by its own, and these a table of
the profile that is named after the problem. Options of the command line override all of them. `base` names a profile
whose keys and tables hold where it says nothing.
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
    """A setting; the panel is the heading under which the help of the command line shows it."""
    return Field(default, description=description, json_schema_extra={"panel": panel}, **limits)


_chosen = partial(_field, panel="What is solved, and how")
_network = partial(_field, panel="Network")
_loss = partial(_field, panel="Points and loss")
_optimization = partial(_field, panel="Optimization")
_step = partial(_field, panel="Calibration of the step")
_machine = partial(_field, panel="Machine and records")


#: Keys that earlier versions wrote into every run, with the value that stands for what is always done now.
_RETIRED = {"members": 1}


class Settings(BaseModel):
    """Everything that decides a run's numbers; two runs with equal settings end with equal parameters.

    Except with a budget of `seconds`: how many epochs it allows is up to the machine.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    problem: str = Field(description="a problem that `dudx problems` lists, or your own as package.module:function")
    engine: str = _chosen("ad", "how derivatives are computed; see `dudx engines`, or package.module:Class")
    accuracy: int = _chosen(2, "order of convergence of finite differences", ge=2, le=12, multiple_of=2)
    seed: int = _chosen(..., "decides the network's start, the points and the random steps", ge=0)
    coupled: Literal["isolate", "fixed", "running", "ignore"] = _chosen(
        "isolate",
        "samples that influence each other: isolate each in its batch; see each against the calibration points, which "
        "are fixed; normalise by running statistics; or ignore it, which is wrong",
    )

    network: str = _network("mlp", "see `dudx networks`, or package.module:Class")
    width: int = _network(128, "neurons in a hidden layer", gt=0)
    depth: int = _network(4, "hidden layers, where the network lets them be chosen", gt=0, le=10_000)
    spread: float = _network(
        0.0, "draw the first layer so much wider, so that the network bends everywhere; 0 as the others", ge=0
    )
    initialisation: Literal["xavier", "torch"] = _network(
        "xavier", "of the plain network: xavier (normal, biases 0), or torch (PyTorch's default for linear layers)"
    )
    rescale: bool | None = _network(None, "map inputs to [-1, 1]; else it is left to the problem")

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
    resample: int = _loss(1, "epochs between new points", gt=0)
    adaptive_power: float = _loss(1.0, "adaptive points: chances grow with this power of the residual", gt=0)
    adaptive_floor: float = _loss(0.1, "adaptive points: what every chance has in addition, the mean being 1", ge=0)
    adaptive_candidates: int = _loss(8, "adaptive points: so many candidates for each", gt=1)
    ramp: float = _loss(
        0.0, "fewer points soon after the start, by (t / (t + ramp))², inside and on the boundary", ge=0
    )
    weights: Literal["fixed", "auto"] = _loss(
        "fixed", "of the parts: fixed (as given below), or auto (by how much each part moves with the parameters)"
    )
    tame: bool = _loss(
        False, "lm: residuals far above their mean count by their size, not its square: for singular corners"
    )
    weight_boundary: float = _loss(10.0, "λ_BC, the weight of the boundary conditions", ge=0)
    weight_initial: float = _loss(10.0, "λ_IC, the weight of the initial condition", ge=0)
    weight_data: float = _loss(1.0, "the weight of measured data", ge=0)

    optimizer: str = _optimization("adam", "see `dudx optimizers`, or package.module:Class")
    learning_rate: float = _optimization(1e-3, "the first one, if there is a schedule", gt=0, le=1e30)
    schedule: Literal["cosine", "constant"] = _optimization("cosine", "of the learning rate: cosine or constant")
    damping: float = _optimization(1e-3, "lm: the first damping", gt=0)
    memory: float = _optimization(0.0, "lm: the share of past batches that is kept, for new points often", ge=0, lt=1)
    acceleration: bool = _optimization(True, "lm: bend steps along the residuals' curvature")
    lbfgs_epochs: int = _optimization(0, "a second phase of L-BFGS of this many epochs", ge=0)
    seconds: float | None = _optimization(None, "stop after so many CPU seconds of training", gt=0)
    settled: int = _optimization(
        0, "stop when the loss on fresh points has fallen by less than a tenth over so many draws; 0 never", ge=0
    )

    compile: bool | Literal["auto"] = _machine(
        False, "use torch.compile; pays off in long runs (auto in a profile: for engines that gain by it)"
    )
    chunk: Annotated[int, Field(gt=0)] | Literal["auto", "whole"] = _machine(
        "auto", "points at once: a number, auto (as many as keep the cache warm), or whole"
    )

    recalibrate: int = _step(4000, "epochs between calibrations", gt=0)
    recalibrate_only: bool = _step(
        False, "at these intervals alone, also with lm, which else calibrates when its damping has changed by ten"
    )
    calibration_points: int = _step(1024, "points at which errors are measured", gt=0)
    calibration_candidates: int = _step(50, "how many steps are tried", ge=3, le=10_000)
    calibration_smallest: float | None = _step(None, "the least step; else by the number format", gt=0)
    calibration_largest: float | None = _step(None, "the largest step; else by the number format", gt=0)

    evaluate_every: int = _machine(500, "epochs between looks at the error", gt=0)
    log_every: int = _machine(20, "epochs between lines of metrics.csv", gt=0)
    checkpoint_every: int = _machine(500, "epochs between checkpoints", gt=0)
    dtype: Literal["float32", "float64"] = _machine("float32", "float32 or float64")
    device: str = _machine("cpu", "cpu or cuda")
    threads: int | None = _machine(None, "CPU threads; else torch's default", gt=0)
    tensorboard: bool = _machine(False, "write TensorBoard events too")
    loggers: str = _machine("", "tell the numbers to: tensorboard, wandb, mlflow, or package.module:Class; with commas")
    estimate: bool = _machine(
        False, "estimate the error in the end, which needs no reference and some seconds; not of coupled networks"
    )
    reference_file: str | None = _machine(None, "a COMSOL data file to score against in addition")


def profile_text(profile: str, package: str = "dudx.lab.run") -> tuple[str, str]:
    """The text of a profile and where it stands: one that comes with a package, by name, or a file of your own."""
    path = Path(profile)
    if path.suffix == ".toml":
        return read_text(path, f"The profile {profile!r} cannot be read: there is no such file."), str(path)
    folder = resources.files(package) / "profiles"
    names = sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))
    look_up(profile, dict.fromkeys(names), "profile")
    return (folder / f"{profile}.toml").read_text(encoding="utf-8"), profile


def make_settings(problem: str | Problem, profile: str = "cpu", **options: Any) -> Settings:
    """The settings for a problem: the profile's, the problem's own, the profile's table for it, the options given."""
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
    """A profile's keys for all problems, and those of the table with a problem's name."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"The profile {where!r} is not valid TOML: {error}.") from error
    special = tables.get(name, {})
    # A number of a problem's name is no setting, which is said later.
    return {k: v for k, v in tables.items() if not isinstance(v, dict)}, special if isinstance(special, dict) else {}


def _based_on(base: object, where: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    if not isinstance(base, str):
        raise InputError(f"In {where!r}: base = {base!r} is not the name of a profile.")
    text, place = profile_text(base)
    general, special = _tables(text, place, name)
    if "base" in general:
        raise InputError(f"In {where!r}: the profile {base!r} has a base of its own; name that one, or repeat it.")
    return general, special


def _made(problem: str | Problem) -> tuple[Problem | None, str]:
    """A problem and the word for it; None if there is no such problem, which is said where the problem is made."""
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
    """A setting that would be taken for something else: a truth value for a number, or what files cannot hold."""
    for key, value in values.items():
        annotation = Settings.model_fields[key].annotation if key in Settings.model_fields else bool
        if isinstance(value, bool) and bool not in (annotation, *get_args(annotation)):
            return key, "a truth value is not a number or a name"
        if isinstance(value, int) and abs(value) >= 2**63:
            return key, "it is too large"
        if isinstance(value, str) and any(unicodedata.category(letter) in ("Cc", "Cs") for letter in value):
            return key, "it contains characters that cannot be written down"
    return None


def _line_of(key: str, text: str, problem: str) -> int | None:
    """Where a key stands: in the table of the problem, which counts, or else before all tables."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if opened := re.match(r"\s*\[\s*[\"']?([^\]\"']+?)[\"']?\s*\]", line):
            table = opened[1]
        elif re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
            found[table] = number
    return found.get(problem, found.get(""))


def literal(text: str) -> Any:
    """A number or a truth value if a text looks like one, else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def parsed(texts: Sequence[str], elsewhere: Iterable[str]) -> dict[str, Any]:
    """Settings given as KEY=VALUE or KEY=VALUE,VALUE; the latter are lists. Those given elsewhere are refused."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not key or not values or key in found:
            raise InputError(f"A setting is given once, as KEY=VALUE or KEY=VALUE,VALUE; got {text!r}.")
        if key in ("problem", *elsewhere):
            raise InputError(f"The {key} has its own place in the command; leave out --set {text}.")
        parts = [literal(value) for value in values.split(",")]
        found[key] = parts if len(parts) > 1 else parts[0]
    return found


def to_toml(settings: Settings) -> str:
    """Return the settings as TOML, one key per line, without those that are None."""
    return tomli_w.dumps(settings.model_dump(exclude_none=True))


def from_toml(text: str, where: str) -> Settings:
    """The settings that `to_toml` wrote."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where!r} is not valid TOML: {error}.") from error
    return validated(values, text, where)
