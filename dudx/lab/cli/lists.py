"""The commands that list engines, problems, networks, optimizers, samplings and references."""

from __future__ import annotations

import inspect
from dataclasses import astuple, fields
from typing import Annotated

import typer

from dudx.lab.cli.program import LISTS, app, console, show_names, show_table


@app.command(rich_help_panel=LISTS)
def engines() -> None:
    """List the engines, which compute derivatives."""
    from dudx.lab.run.engine_table import engine_summary, engines_in_order

    show_names("engine", {name: engine_summary(name) for name in engines_in_order()})


@app.command(rich_help_panel=LISTS)
def problems() -> None:
    """List the problems."""
    from dudx.lab.problems import problems

    show_names("problem", {name: make().title for name, make in problems().items()})


@app.command(rich_help_panel=LISTS)
def networks() -> None:
    """List the networks."""
    from dudx.lab.run.networks import networks

    show_names("network", {name: _summary(maker) for name, maker in networks().items()})


@app.command(rich_help_panel=LISTS)
def optimizers() -> None:
    """List the optimizers."""
    from dudx.lab.run.optimizers import optimizers

    show_names("optimizer", {name: _summary(maker) for name, maker in optimizers().items()})


@app.command(rich_help_panel=LISTS)
def samplings() -> None:
    """List the samplings, which draw collocation points."""
    from dudx.lab.sampling import samplings

    show_names("sampling", {name: _summary(kind) for name, kind in samplings().items()})


def _summary(maker: object) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(maker) or "").partition("\n")[0].rstrip(".")


@app.command(rich_help_panel=LISTS)
def reference(
    name: Annotated[str, typer.Argument(help="poisson, burgers or heat")],
    rebuild: Annotated[bool, typer.Option("--rebuild", help="compute it again and show its convergence")] = False,
) -> None:
    """Show a reference solution's size and range, or compute it again."""
    from dudx.lab.problems import references

    if rebuild:
        rows = references.refinement_table(name)
        columns = [column.name for column in fields(rows[0])]
        show_table(columns, [[_short(value) for value in astuple(row)] for row in rows], f"Refinement of {name}")
        written = references.rebuild(name)
        console.print(f"Written: {written}" if written else f"{name} is a formula; there is no file to write.")
    solution = references.reference(name)
    values = solution.values
    console.print(f"{name}: {len(values)} values from {values.min():.4g} to {values.max():.4g}.")


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)
