"""A solution as one self-contained HTML page: an animation over time, the residual, the training and the numbers."""

from __future__ import annotations

import base64
import html
import io
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.animation import FuncAnimation
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dudx.errors import InputError, percent
from dudx.lab import file_formats
from dudx.lab.plots import FIELD_MAP, STYLE, training_columns, training_panels
from dudx.lab.solving.grids import Solved, grid
from dudx.lab.solving.solution_pictures import picture, show

# matplotlib's buttons take their symbols from a font on the web; these stand in for it.
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body{{font:15px/1.5 sans-serif;max-width:62em;margin:2em auto;padding:0 1em}}img{{max-width:100%}}
table{{border-collapse:collapse}}td{{padding:.1em 1em .1em 0}}.fa{{font-style:normal}}
.fa-minus::before{{content:"−"}}.fa-plus::before{{content:"+"}}.fa-fast-backward::before{{content:"⏮"}}
.fa-step-backward::before{{content:"◂"}}.fa-step-forward::before{{content:"▸"}}.fa-fast-forward::before{{content:"⏭"}}
.fa-play::before{{content:"▶"}}.fa-pause::before{{content:"⏸"}}
.fa-flip-horizontal{{display:inline-block;transform:scaleX(-1)}}</style>
<h1>{title}</h1>
{body}
</html>
"""


def write_page(solution: Solved, path: Path, frames: int) -> Path:
    """Write the page; solutions in two space dimensions and time are animated."""
    if path.suffix != ".html":
        raise InputError(f"A page is written as .html; got {path.name!r}.")
    problem = solution.problem
    parts = [_animation(solution, frames)] if problem.time == 2 and len(problem.inputs) == 3 else []
    parts.append(_section("Solution and residual", picture(solution, None)))
    if solution.history:
        parts.append(_section("Training", _training(solution)))
    parts.append(f"<h2>Numbers</h2><table>{_rows(solution)}</table>")
    file_formats.write_text(path, _PAGE.format(title=html.escape(problem.title), body="\n".join(parts)))
    return path


def notebook_view(solution: Solved) -> str:
    """Return the picture and the numbers of a solution, for notebooks."""
    table = f"<table>{_rows(solution)}</table>"
    return _section(html.escape(solution.problem.title), picture(solution, None)) + table


def _animation(solution: Solved, frames: int) -> str:
    """Return matplotlib's player (play, pause, a slider) of the solution over time, with one scale of colours."""
    problem = solution.problem
    if frames < 2:
        raise InputError(f"An animation has two frames or more; got {frames}.")
    name = problem.inputs[2]
    low, high = (corner[2] for corner in problem.domain.bounds)
    times = np.linspace(low, high, frames)
    grids = [grid(solution, 121, {name: float(t)}) for t in times]
    limits = {
        key: (min(np.nanmin(g.values[key]) for g in grids), max(np.nanmax(g.values[key]) for g in grids))
        for key in problem.names
    }
    # matplotlib leaves out frames beyond its limit of megabytes.
    with mpl.rc_context({**STYLE, "savefig.dpi": 80, "animation.embed_limit": 1000.0}):
        figure = Figure(figsize=(4.6 * problem.outputs, 3.8), layout="constrained")
        FigureCanvasAgg(figure)

        def draw(number: int) -> list[Any]:
            figure.clear()
            panels = figure.subplots(1, problem.outputs, squeeze=False)[0]
            for ax, (key, values) in zip(panels, grids[number].values.items(), strict=True):
                show(ax, grids[number], values, None, FIELD_MAP, limits[key])
                ax.set_title(key)
            figure.suptitle(f"{name} = {times[number]:.4g}")
            return []

        player = FuncAnimation(figure, draw, frames=frames, init_func=lambda: []).to_jshtml(fps=5, default_mode="loop")
    return re.sub(r"<link\b[^>]*>", "", player)


def _training(solution: Solved) -> Figure:
    """Draw the losses, and the errors if there is a reference, over the epochs."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 3.6), layout="constrained")
        axes = figure.subplots(1, training_columns(solution.history), squeeze=False)[0]
        training_panels(axes, "loss", solution.history)
    return figure


def _section(heading: str, figure: Figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    image = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f'<h2>{heading}</h2><img alt="{heading.lower()}" src="data:image/png;base64,{image}">'


def _rows(solution: Solved) -> str:
    result: dict[str, Any] = dict(solution.result)
    shown = {
        "estimated relative error": percent(solution.estimate),
        "optimizer steps": result.get("epochs"),
        "CPU seconds": f"{result.get('cpu_seconds', 0.0):.1f}",
        **({"time windows": len(result["windows"])} if "windows" in result else {}),
        **{f"{name} (found)": f"{value:.6g}" for name, value in result.get("unknowns", {}).items()},
    }
    return "".join(f"<tr><td>{html.escape(k)}</td><td>{html.escape(str(v))}</td></tr>" for k, v in shown.items())
