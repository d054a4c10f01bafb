"""The Typer program that all commands belong to, and their shared options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as ScreenTable
from typer.core import TyperGroup

import dudx
from dudx.errors import InputError
from dudx.lab.run.settings import Settings


class StoppedError(Exception):
    """Ctrl-C was pressed. Replaces KeyboardInterrupt, which Typer would turn into a silent exit."""


#: Headings of `dudx --help`, in this order.
PANELS = SOLVE, MANY, LISTS = "Solve a problem", "Many runs", "Lists"


class Commands(TyperGroup):
    """A group of commands that distinguishes Ctrl-C from other exits and lists its commands by their panels."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands, key=lambda name: PANELS.index(self.commands[name].rich_help_panel))  # type: ignore[attr-defined]

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise StoppedError from stop


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Solve differential equations with neural networks, and choose how their derivatives are computed.",
)
#: No markup: names and paths may contain brackets.
console = Console(markup=False, emoji=False)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"dudx {dudx.__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    pass


def _folder(text: str) -> Path:
    if not text.strip() or "\0" in text:
        raise InputError(f"A folder needs a name; got {text!r}.")
    return Path(text)


def folder_option(help: str) -> Any:
    """Return an option that names a folder; an empty text is refused."""
    return typer.Option(help=help, parser=_folder, metavar="FOLDER")


ProblemName = Annotated[str, typer.Argument(help=Settings.model_fields["problem"].description)]
ProfileName = Annotated[
    str, typer.Option("--profile", help="defaults to start from: cpu, paper, smoke, or a .toml file of your own")
]
#: Any setting of a run without an option of its own in a command.
FurtherSettings = Annotated[
    list[str] | None, typer.Option("--set", help="another setting, KEY=VALUE; in a sweep, KEY=VALUE,VALUE is an axis")
]
Workers = Annotated[int | None, typer.Option(help="number of simultaneous runs; default: what the cores allow")]


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, words: int = 0) -> None:
    """Print a table whose first `words` columns are text and the rest numbers."""
    table = ScreenTable(title=title)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < words else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def show_names(kind: str, what: Mapping[str, str]) -> None:
    """Print names and their descriptions."""
    show_table([kind, "description"], list(what.items()), words=2)
