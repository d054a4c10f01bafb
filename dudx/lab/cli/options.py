"""Command-line options generated from `Settings`, which defines their names, types and help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from dudx.lab.run.settings import Settings, literal

#: Shorter names, beside the setting's own.
_ALSO = {"reference_file": "reference", "calibration_candidates": "candidates"}


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each setting but the problem to a command.

    The command receives their values as a dictionary, its argument `options`; None means not given.
    """
    chosen = [name for name in Settings.model_fields if name != "problem"]

    def wrapper(**values: Any) -> None:
        options = {name: _read(name, values.pop(name)) for name in chosen}
        command(**values, options=options)

    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "options"]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + [_option(name) for name in chosen]
    wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


def _option(name: str) -> inspect.Parameter:
    field = Settings.model_fields[name]
    extra = field.json_schema_extra
    kind = _kind(field.annotation)
    spelled = [word.replace("_", "-") for word in (_ALSO.get(name), name) if word]
    flags = [f"--{word}/--no-{word}" if kind is bool else f"--{word}" for word in spelled]
    option = typer.Option(
        *flags, help=field.description, rich_help_panel=str(extra["panel"]) if isinstance(extra, dict) else None
    )
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _kind(annotation: Any) -> type:
    """Return the type the command line parses: a number or bool if the setting can be nothing else, or else a text."""
    # `--compile` is a flag; its value "auto" is available to profiles only.
    among = [annotation] if isinstance(annotation, type) else [a for a in get_args(annotation) if a is not type(None)]
    if bool in among:
        return bool
    return among[0] if len(among) == 1 and among[0] in (int, float) and get_origin(annotation) is not Literal else str


def _read(name: str, value: Any) -> Any:
    """Convert a text to a number if the setting may be either."""
    either = Settings.model_fields[name].annotation not in (str, str | None)
    return literal(value) if isinstance(value, str) and either else value
