"""The commands that list engines, problems, networks, optimizers and samplings."""

from __future__ import annotations

import inspect

from dudx.lab.cli.program import LISTS, app, show_names


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
