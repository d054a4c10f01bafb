"""Damaged files are refused with a sentence that names them; `make torture` tries hundreds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from damage import USES, Workshop, told
from matplotlib.figure import Figure

from dudx.errors import InputError
from dudx.lab import file_formats, plots, train
from dudx.lab.atomic_files import SUMS
from dudx.lab.problems import problem
from dudx.lab.run.engine_table import engine_label


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("workshop"))


def test_files_that_are_damaged_at_random(workshop: Workshop) -> None:
    cases = workshop.random_cases(34, seed=0)
    verdicts = [(case, workshop.verdict(case[0], case[1], case[3])) for case in cases]
    assert not [told(case, verdict) for case, verdict in verdicts if verdict.fault]
    assert sum(verdict.end == "refused" for _, verdict in verdicts) > 25


@pytest.mark.parametrize("use", USES)
def test_every_file_emptied(use: str, workshop: Workshop) -> None:
    for name in USES[use][2]:
        verdict = workshop.verdict(use, name, b"")
        assert verdict.end == "refused", told((use, name, "emptied", b""), verdict)


def test_checkpoints_that_hold_something_odd(workshop: Workshop) -> None:
    verdicts = [(case, workshop.verdict(case[0], case[1], case[3])) for case in workshop.odd_cases()]
    assert len(verdicts) > 30
    assert not [told(case, verdict) for case, verdict in verdicts if verdict.end not in ("refused", "harmless")]


def test_every_bit_of_a_small_checkpoint_counts(tmp_path: Path) -> None:
    """A checkpoint with a flipped bit is refused, or its tensors are unchanged."""
    path = tmp_path / "checkpoint.pt"
    file_formats.write_checkpoint(path, {"w": torch.arange(4.0), "epoch": 3})
    content = path.read_bytes()
    refused = 0
    for at in range(0, len(content), 3):
        path.write_bytes(content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :])
        try:
            found = file_formats.read_checkpoint(path)
        except InputError:
            refused += 1
        else:
            assert found["epoch"] == 3
            assert torch.equal(found["w"], torch.arange(4.0))
    assert refused > 100


def test_runs_without_sums_are_read_and_resumed(workshop: Workshop, tmp_path: Path) -> None:
    """As those that ended before there were sums, or checkpoints that knew of them."""
    folder = tmp_path / "old"
    shutil.copytree(workshop.runs["killed"], folder)
    (folder / SUMS).unlink()
    content = file_formats.read_checkpoint(folder / "checkpoint.pt")
    records = content["records"]
    content["records"] = {
        "rows": records["table"]["rows"],
        "recent": records["recent"],
        "calibrations": records["calibrations"],
    }
    file_formats.write_checkpoint(folder / "checkpoint.pt", {"epoch": 4})  # the first ones were laid out otherwise
    assert plots.plot_run(folder)
    file_formats.write_checkpoint(folder / "checkpoint.pt", content)
    assert plots.plot_run(folder)
    assert train(workshop.settings, folder, resume=True)["status"] == "finished"
    rows = [file_formats.read_table(place / "metrics.csv") for place in (folder, workshop.runs["ended"])]
    assert [row["loss"] for row in rows[0]] == [row["loss"] for row in rows[1]]


def test_an_old_table_that_lost_rows_is_not_resumed(workshop: Workshop, tmp_path: Path) -> None:
    folder = tmp_path / "old"
    shutil.copytree(workshop.runs["killed"], folder)
    content = file_formats.read_checkpoint(folder / "checkpoint.pt")
    content["records"] = {**content["records"], "table": {"rows": content["records"]["table"]["rows"]}}
    file_formats.write_checkpoint(folder / "checkpoint.pt", content)
    lines = (folder / "metrics.csv").read_bytes().splitlines(keepends=True)
    (folder / "metrics.csv").write_bytes(b"".join(lines[:2]))
    with pytest.raises(InputError, match=r"metrics\.csv' is damaged: 1 of its \d rows are left"):
        train(workshop.settings, folder, resume=True)


def test_the_table_of_a_run_that_was_killed_is_compared_with_its_checkpoint(workshop: Workshop, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    shutil.copytree(workshop.runs["killed"], folder)
    assert len(plots.plot_run(folder)) == 2
    lines = (folder / "metrics.csv").read_bytes().splitlines(keepends=True)
    (folder / "metrics.csv").write_bytes(b"".join([lines[0], *lines[2:]]))
    with pytest.raises(InputError, match=r"metrics\.csv' is damaged: it differs from the state in the checkpoint"):
        plots.plot_run(folder)


def test_a_look_at_a_run_imports_nothing(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder from elsewhere, whose settings name modules of the folder one stands in."""
    # Pictures are put together and not painted, which takes a second and imports what it always does.
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **_: Path(path).touch())
    folder = tmp_path / "foreign"
    shutil.copytree(workshop.runs["ended"], folder)
    (folder / SUMS).unlink()
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    config = (folder / "config.toml").read_text()
    monkeypatch.chdir(tmp_path)
    for key in ("problem", "engine", "network", "optimizer"):
        lines = [f'{key} = "evil:make"' if line.startswith(f"{key} =") else line for line in config.splitlines()]
        (folder / "config.toml").write_text("\n".join(lines))
        assert "training.png" in {path.name for path in plots.plot_run(folder)}
    assert engine_label("evil:make") == "make"
    assert not (tmp_path / "ran").exists()
    with pytest.raises(
        InputError, match="'evil' has nothing named"
    ):  # the module has no such name, which is known by importing it
        problem("evil:make")
    assert (tmp_path / "ran").exists()
