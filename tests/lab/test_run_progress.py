"""The progress display at the widths of common terminals."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from dudx.lab.run.run_progress import Bar, Lines, display

FACTS = {
    "loss": "1.2e-05",
    "pde": "3.4e-06",
    "boundary": "5.6e-07",
    "initial": "7.8e-08",
    "L2": "1.2 %",
    "step": "1e-3, 2e-2",
}


def recorded(width: int, unit: str = "epoch", title: str = "Kuramoto-Sivashinsky") -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO(), force_terminal=True)
    bar = Bar(title, unit, 400, 0, console)
    for done in (10, 100, 200):
        bar.update(done, FACTS, False)
    console.print(bar.progress.get_renderable())
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", [80, 130])
@pytest.mark.parametrize("unit", ["epoch", "CPU second"])
def test_the_bar_its_title_the_amount_and_the_time_left_fit(width: int, unit: str) -> None:
    first, second = recorded(width, unit)
    assert first.startswith("Kuramoto-Sivashinsky ")
    assert len(re.findall("[━╸╺]", first)) == 16
    assert ("epoch 200/400" if unit == "epoch" else "200/400 CPU seconds") in first
    assert re.search(r"left \S*\d:\d\d|left -:--:--", first)
    assert "loss 1.2e-05" in second
    assert max(len(first), len(second)) <= width


def test_a_long_title_is_shortened() -> None:
    assert recorded(80, title="The Kuramoto-Sivashinsky equation on a torus")[0].startswith(
        "The Kuramoto-Sivashinsk… ━"
    )


def test_lines_name_the_unit_and_small_amounts(capsys: pytest.CaptureFixture[str]) -> None:
    Lines("heat", "CPU second", 0.5, 0).update(0.25, {}, True)
    assert "heat  0.25/0.50 CPU seconds" in capsys.readouterr().err


def test_a_quiet_display_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with display("heat", "epoch", 4, quiet=True) as shown:
        shown.update(4, FACTS, True)
    assert capsys.readouterr() == ("", "")
