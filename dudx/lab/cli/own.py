"""The command `dudx new`, which writes a template."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dudx.errors import InputError
from dudx.lab.cli.program import SOLVE, app, console

_FILE = '''"""{title}: one sentence about the problem.

    dudx train {name}:problem --out runs/{name}
    python {name}.py
"""

import torch

from dudx.lab import Box, Dirichlet, Disc, Initial, Interval, Problem, Robin, solve

# Where: shapes combine by - and |; * Interval(0, 1) adds the time, which is the last input then.
plate = Box((0, 0), (1, 1)) - Disc((0.5, 0.5), 0.2)

problem = Problem(
    # The equation, which is to be zero; a tuple of several. Derivatives are named after the inputs: u.t, u.xx, u.xy.
    # It may take inputs by name too: lambda u, x, t: u.t - torch.sin(x) * u.xx
    lambda u: u.t - 0.1 * (u.xx + u.yy),
    inputs=("x", "y", "t"),
    domain=plate * Interval(0, 1),
    conditions=[
        # On a part of the boundary: a shape, "left", "right", "bottom", "top", "x=0", or where a function is true,
        # lambda x, y: (x == 0) & (y > 0.5). Values are numbers or functions of the inputs by name. There are also
        # Neumann, Periodic, Data, Equation.
        Dirichlet(u=0.0, on=plate.outside),
        Robin(a=1.0, g=1.0, on=plate.holes),
        Initial(u=lambda x, y: 0.1 * torch.sin(3.14159265 * x) * torch.sin(3.14159265 * y)),
    ],
    title="{title}",
)

if __name__ == "__main__":
    solution = solve(problem, minutes=1)
    solution.plot("{name}.png")
    solution.save_html("{name}.html")
    print("estimated relative error", solution.estimate)
'''


@app.command(rich_help_panel=SOLVE)
def new(name: Annotated[str, typer.Argument(help="name of the problem and of its file")]) -> None:
    """Write a template for a problem of your own.

    Example: dudx new my_problem
    """
    if not name.isidentifier():
        raise InputError(f"A problem's name is that of a module, such as my_problem; got {name!r}.")
    path = Path(f"{name}.py")
    if path.exists():
        raise InputError(f"There is a file {str(path)!r} already; choose another name.")
    from dudx.lab import file_formats

    file_formats.write_text(path, _FILE.format(name=name, title=name.replace("_", " ").capitalize()))
    console.print(f"Written: {path}. Solve it by: dudx train {name}:problem --out runs/{name}")
