"""Command `python -m reproduction.references`: compute a reference solution and show how it converges."""

from __future__ import annotations

from dataclasses import astuple, fields
from pathlib import Path
from typing import Annotated

import typer

from dudx.lab.cli import run_program
from dudx.lab.cli.program import console, show_table
from dudx.lab.file_formats import write_arrays
from dudx.lab.named_objects import look_up
from dudx.lab.problems.references import DATA
from reproduction.references import heat, poisson
from reproduction.references.refinement import Refinement

SOURCES = {"poisson": poisson, "heat": heat}

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def main(
    name: Annotated[str, typer.Argument(help="poisson or heat")],
    rebuild: Annotated[bool, typer.Option("--rebuild", help="also write the arrays that the package stores")] = False,
) -> None:
    """Solve on ever finer meshes and print the refinement table.

    Example: python -m reproduction.references heat --rebuild
    """
    source = look_up(name, SOURCES, "reference")
    rows = [[_short(value) for value in astuple(row)] for row in source.refinements()]
    show_table([column.name for column in fields(Refinement)], rows, f"Refinement of {name}")
    if rebuild:
        console.print(f"Written: {build(name)}")


def build(name: str, folder: Path = DATA) -> Path:
    """Compute the arrays of a reference and write them, all or nothing."""
    path = folder / f"{name}.npz"
    write_arrays(path, **look_up(name, SOURCES, "reference").build())
    return path


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)


if __name__ == "__main__":
    run_program(app)
