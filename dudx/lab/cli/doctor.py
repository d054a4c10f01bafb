"""A look at a network before any training."""

from __future__ import annotations

from typing import Annotated

import typer

from dudx.lab.cli.program import app


@app.command()
def doctor(
    network: Annotated[
        str | None, typer.Argument(help="package.module:factory, a module that is there, or mlp, batchnorm …")
    ] = None,
    points: Annotated[int, typer.Option(help="random points in the batch")] = 64,
    inputs: Annotated[int | None, typer.Option(help="variables; else those of the first Linear layer")] = None,
    low: Annotated[float, typer.Option(help="the least value of every variable")] = -1.0,
    high: Annotated[float, typer.Option(help="the largest value of every variable")] = 1.0,
    seed: Annotated[int, typer.Option(help="decides the network's start and the points")] = 0,
    evaluation: Annotated[bool, typer.Option("--eval", help="look at evaluation mode")] = False,
    script: Annotated[str | None, typer.Option(help="a file to run, and to look at its derivatives")] = None,
) -> None:
    """Tell whether the samples of a network influence each other, in which layers, and what to do.

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
