"""Python blocks of README and docs run as printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: The first line of a block that is a file.
FILE = re.compile(r"# ((?:dudx|reproduction)/\S+\.py)\n")


def blocks_of(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "extending.md"], ids=lambda page: page.name)
def test_the_python_blocks_of_a_page_run_one_after_the_other(page: Path) -> None:
    space: dict[str, object] = {}
    for number, block in enumerate(blocks_of(page), 1):
        exec(compile(block, f"{page.name}, block {number}", "exec"), space)


def test_an_extension_is_one_new_file(tmp_path: Path) -> None:
    """The files of the page are put into a copy of the package, and the rest of the page is run with it."""
    for package in ("dudx", "reproduction"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    files, script = [], []
    for block in blocks_of(ROOT / "docs" / "extending.md"):
        name = FILE.match(block)
        if name is None:
            script.append(block)
        else:
            path = tmp_path / name[1]
            assert path.parent.is_dir()
            assert not path.exists()
            path.write_text(block, encoding="utf-8")
            files.append(path)
    assert len(files) == 6  # an engine, two kinds of rules, a problem, an optimizer, an experiment
    page = tmp_path / "page.py"
    # Workers import the script again, where only the first process is to run it.
    page.write_text("if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in "\n".join(script).split("\n")))
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run([sys.executable, str(page)], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"^Forward +\d", ran.stdout, re.MULTILINE)  # its row of the recommendation
    assert re.search(r"^\| 16 \| \d", ran.stdout, re.MULTILINE)  # its row of the experiment's table


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_page_is_in_the_contents_of_the_site() -> None:
    contents = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^(\w+)$", contents, re.MULTILINE))
    assert {page.stem for page in PAGES[1:]} - {"index"} == listed
