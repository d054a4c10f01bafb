"""The command `dudx doctor`: examine a network before training."""

from __future__ import annotations

from typing import Annotated

import typer

from dudx.lab.cli.program import NETWORKS, app


@app.command(rich_help_panel=NETWORKS)
def doctor(
    network: Annotated[
        str | None, typer.Argument(help="package.module:factory, an instance there, or mlp, batchnorm …")
    ] = None,
    points: Annotated[int, typer.Option(help="random points in the batch")] = 64,
    inputs: Annotated[
        int | None, typer.Option(help="number of inputs; by default that of the first Linear layer")
    ] = None,
    low: Annotated[float, typer.Option(help="smallest value of every input")] = -1.0,
    high: Annotated[float, typer.Option(help="largest value of every input")] = 1.0,
    seed: Annotated[int, typer.Option(help="seed of the network and the points")] = 0,
    evaluation: Annotated[bool, typer.Option("--eval", help="examine evaluation mode")] = False,
    script: Annotated[str | None, typer.Option(help="a Python file to run while its derivatives are watched")] = None,
) -> None:
    """Report whether the samples of a batch influence each other, in which layers, and what to do.

    The exit code is 0 if samples are independent, 4 if they influence each other, 1 for an error.

    Examples: dudx doctor mypackage.networks:make --inputs 3, dudx doctor --script train.py
    """
    from dudx.errors import InputError
    from dudx.lab.cli.examination import examine, watched

    if (network is None) == (script is None):
        raise InputError("Give either a network, dudx doctor package.module:factory, or --script train.py.")
    if script is not None:
        seen = watched(script)
        print(seen)
        raise typer.Exit(4 if seen.findings else 0)
    assert network is not None
    explanation = examine(network, points, inputs, low, high, seed, evaluation)
    print(explanation)
    if explanation.coupled:
        raise typer.Exit(4)
