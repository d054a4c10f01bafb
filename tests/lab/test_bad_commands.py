"""Bad commands end in one sentence, before anything is made; `make torture` tries hundreds more."""

from __future__ import annotations

from pathlib import Path

import bad_commands
import pytest

from dudx.lab.cli import program


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    bad_commands.prepare(folder)
    return folder


@pytest.mark.parametrize("name", bad_commands.TABLE)
def test_a_bad_command_is_one_sentence_before_anything_is_made(name: str, place: Path) -> None:
    line, sentence = bad_commands.TABLE[name]
    fault = bad_commands.answer(line, place).fault(sentence)
    assert fault is None, f"dudx {line}: {fault}"


def test_bad_commands_at_random(place: Path) -> None:
    faults = {line: bad_commands.answer(line, place).fault() for line in bad_commands.generated(40)}
    assert not {line: fault for line, fault in faults.items() if fault}


def test_brackets_in_a_path_and_dollars_in_a_title_are_drawn_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dollars.py").write_text(
        "import dataclasses\nfrom dudx.lab import problem\n"
        "def make():\n    return dataclasses.replace(problem('poisson'), title=r'costs $\\foo and [/bold]')\n"
    )
    monkeypatch.setattr(program.console, "width", 400)
    line = "train dollars:make --profile smoke --epochs 2 --out 'a [/bold] :smile: [red]'"
    answer = bad_commands.answer(line, tmp_path)
    assert answer.code == 0, answer.said
    folder = tmp_path / "a [/bold] :smile: [red]"
    assert (folder / "solution.png").exists()
    assert bad_commands.answer("plot 'a [/bold] :smile: [red]'", tmp_path).code == 0
