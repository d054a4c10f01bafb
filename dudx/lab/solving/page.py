"""A solution as one page that needs nothing else: pictures inside it, time as a slider."""

from __future__ import annotations

import base64
import html
import io
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from dudx.errors import InputError
from dudx.lab import storage
from dudx.lab.plots import FIELD_MAP, STYLE
from dudx.lab.run.metrics import percent
from dudx.lab.solving.grids import Solved, grid
from dudx.lab.solving.solution_pictures import picture, show

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body{{font:15px/1.5 sans-serif;max-width:62em;margin:2em auto;padding:0 1em}}img{{max-width:100%}}
table{{border-collapse:collapse}}td{{padding:.1em 1em .1em 0}}input{{width:100%}}</style>
<h1>{title}</h1>
{slider}
<h2>Solution and residual</h2><img alt="solution and residual" src="data:image/png;base64,{overview}">
<h2>Numbers</h2><table>{rows}</table>
</html>
"""
_SLIDER = """<p><input type="range" id="time" min="0" max="{last}" value="{last}" aria-label="time">
<b id="when"></b></p>
<p><img id="frame" alt="solution"></p>
<script>
const frames = {frames}, times = {times};
const slider = document.getElementById("time");
function move() {{
  document.getElementById("frame").src = "data:image/png;base64," + frames[slider.value];
  document.getElementById("when").textContent = "{name} = " + times[slider.value];
}}
slider.addEventListener("input", move); move();
</script>
"""


def page(solution: Solved, path: Path, frames: int) -> Path:
    """Write the page."""
    if path.suffix != ".html":
        raise InputError(f"A page is written as .html; got {path.name!r}.")
    problem = solution.problem
    slider = _slider(solution, frames) if problem.time == 2 and len(problem.inputs) == 3 else ""
    text = _PAGE.format(
        title=html.escape(problem.title),
        slider=slider,
        overview=_encoded(picture(solution, None)),
        rows=_rows(solution),
    )
    storage.write_text(path, text)
    return path


def _slider(solution: Solved, frames: int) -> str:
    """A picture for each of some times, all with the same colours."""
    problem = solution.problem
    if frames < 2:
        raise InputError(f"A slider has two frames or more; got {frames}.")
    name = problem.inputs[2]
    low, high = (corner[2] for corner in problem.domain.bounds)
    times = np.linspace(low, high, frames)
    grids = [grid(solution, 121, {name: float(t)}) for t in times]
    limits = {
        key: (min(np.nanmin(g.values[key]) for g in grids), max(np.nanmax(g.values[key]) for g in grids))
        for key in problem.names
    }
    pictures = []
    for found in grids:
        with mpl.rc_context(STYLE):
            figure = Figure(figsize=(4.6 * problem.outputs, 3.8), layout="constrained")
            for ax, (key, values) in zip(
                figure.subplots(1, problem.outputs, squeeze=False)[0], found.values.items(), strict=True
            ):
                show(ax, found, values, None, FIELD_MAP, limits[key])
                ax.set_title(key)
            pictures.append(_encoded(figure, 80))
    shown = [f"{t:.4g}" for t in times]
    return _SLIDER.format(last=frames - 1, frames=json.dumps(pictures), times=json.dumps(shown), name=html.escape(name))


def _encoded(figure: Figure, dpi: int = 110) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def _rows(solution: Solved) -> str:
    result: dict[str, Any] = dict(solution.result)
    shown = {
        "estimated relative error": "-" if solution.estimate is None else percent(solution.estimate),
        "steps": result.get("epochs"),
        "CPU seconds": f"{result.get('cpu_seconds', 0.0):.1f}",
        "windows of time": len(result.get("windows", ())) or 1,
        **{f"{name} (found)": f"{value:.6g}" for name, value in result.get("unknowns", {}).items()},
    }
    return "".join(f"<tr><td>{html.escape(k)}</td><td>{html.escape(str(v))}</td></tr>" for k, v in shown.items())
