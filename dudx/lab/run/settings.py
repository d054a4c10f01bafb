"""The settings of a run, and the profiles they come from.

A profile is a TOML file: keys at the top are defaults, a table named after a problem overrides them for that problem.
Options of the command line override both.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dudx.errors import InputError
from dudx.lab.names import look_up

Whole = Field(ge=0)
Positive = Field(gt=0)


class Settings(BaseModel):
    """Everything that decides a run's numbers; two runs with equal settings end with equal parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    problem: str
    engine: str = "ad"
    accuracy: int = Field(2, ge=2, multiple_of=2, description="order of convergence of finite differences")
    seed: int = Whole

    network: str = "mlp"
    width: int = Field(128, gt=0)
    depth: int = Field(4, gt=0)
    rescale: bool | None = Field(None, description="map inputs to [-1, 1]; None leaves it to the problem")

    epochs: int = Field(20_000, gt=0)
    batch: int = Field(8192, gt=0, description="points in the interior, drawn anew every epoch")
    boundary_batch: int = Field(2048, gt=0)
    initial_batch: int = Field(2048, gt=0)
    weight_boundary: float = Field(10.0, ge=0, description="λ_BC")
    weight_initial: float = Field(10.0, ge=0, description="λ_IC")
    weight_data: float = Field(1.0, ge=0)

    optimizer: str = Field("adam", description="adam, soap, or any optimizer as package.module:Class")
    learning_rate: float = Field(1e-3, gt=0)
    schedule: Literal["cosine", "constant"] = "cosine"
    lbfgs_epochs: int = Field(0, ge=0, description="a second phase of L-BFGS after the first optimizer")

    compile: bool | Literal["auto"] = Field(
        False, description="torch.compile, which takes seconds to start; auto for taylor, which gains most"
    )
    chunk: Annotated[int, Positive] | Literal["auto", "whole"] = Field(
        "auto", description="points at once: a number, as many as keep the cache warm, or the whole batch"
    )
    coupled: Literal["isolate", "ignore"] = Field(
        "isolate", description="networks whose samples influence each other: isolate the samples, or get it wrong"
    )

    recalibrate: int = Field(4000, gt=0, description="epochs between calibrations of the step")
    calibration_points: int = Field(1024, gt=0)
    calibration_candidates: int = Field(50, ge=3)
    calibration_smallest: float | None = Field(None, gt=0)
    calibration_largest: float | None = Field(None, gt=0)

    evaluate_every: int = Field(500, gt=0)
    log_every: int = Field(20, gt=0)
    checkpoint_every: int = Field(500, gt=0)
    dtype: Literal["float32", "float64"] = "float32"
    device: str = "cpu"
    threads: int | None = Field(None, gt=0, description="CPU threads; None leaves torch's default")
    tensorboard: bool = False
    reference_file: str | None = Field(None, description="a data file to score against in addition")


def profile_names() -> list[str]:
    """The profiles that come with the package."""
    folder = resources.files("dudx.lab.run") / "profiles"
    return sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml"))


def load_profile(profile: str) -> tuple[str, str]:
    """The text of a profile and where it stands: a name that comes with the package, or a file of your own."""
    path = Path(profile)
    if path.suffix == ".toml":
        try:
            return path.read_text(encoding="utf-8"), str(path)
        except OSError as error:
            raise InputError(f"The profile {profile!r} cannot be read: {error.strerror}.") from error
    look_up(profile, dict.fromkeys(profile_names()), "profile")
    return (resources.files("dudx.lab.run") / "profiles" / f"{profile}.toml").read_text(encoding="utf-8"), profile


def make_settings(problem: str, profile: str = "cpu", **options: Any) -> Settings:
    """The settings for a problem: the profile's defaults, its table for the problem, then the options given."""
    text, where = load_profile(profile)
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"The profile {where!r} is not valid TOML: {error}.") from error
    merged = {key: value for key, value in tables.items() if not isinstance(value, dict)}
    merged |= tables.get(problem.rpartition(":")[2], {})
    given = {key: value for key, value in options.items() if value is not None}
    return validated({"seed": 0, **merged, **given, "problem": problem}, text, where, given)


def validated(
    values: Mapping[str, Any], text: str = "", where: str = "settings", given: Mapping[str, Any] | None = None
) -> Settings:
    """Settings, or one sentence that names the key at fault and the line it stands on."""
    try:
        return Settings(**values)
    except ValidationError as error:
        fault = error.errors()[0]
        key = str(fault["loc"][0]) if fault["loc"] else "?"
        problem = "there is no such setting" if fault["type"] == "extra_forbidden" else fault["msg"].lower()
        if key in (given or {}):
            raise InputError(f"The option {key} = {values[key]!r} is not right: {problem}.") from error
        line = _line_of(key, text, str(values.get("problem", "")).rpartition(":")[2])
        place = f"{where!r}, line {line}" if line else repr(where)
        raise InputError(f"In {place}: {key} = {values.get(key)!r} is not right: {problem}.") from error


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


def to_toml(settings: Settings) -> str:
    """The settings as TOML, one key a line; settings that are None are left out."""
    lines = []
    for key, value in settings.model_dump().items():
        if value is None:
            continue
        if isinstance(value, bool):
            literal = str(value).lower()
        elif isinstance(value, str):
            literal = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        else:
            literal = repr(value)
        lines.append(f"{key} = {literal}")
    return "\n".join(lines) + "\n"


def from_toml(text: str, where: str) -> Settings:
    """The settings that `to_toml` wrote."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where!r} is not valid TOML: {error}.") from error
    return validated(values, text, where)
