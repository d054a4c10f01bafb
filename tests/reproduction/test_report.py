"""The report and its page: tables, verdicts with both numbers, and nothing that users wrote as markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_up_data import EXPERIMENTS, JITTER, cost_rows, errors, put, run_rows

from dudx.errors import InputError
from reproduction.experiments.claims import Claim, Ratio
from reproduction.experiments.data import write_data
from reproduction.experiments.tables import Cell, Table, counted, percent, scientific, spread, times
from reproduction.report import write_report
from reproduction.report.document import Document, Judged, Part, Section
from reproduction.report.drawing import ratio_picture
from reproduction.report.html import page

# -- tables ------------------------------------------------------------------------------------------------------------


def test_tables_as_markdown_and_csv() -> None:
    table = Table("Errors.", ["method", "L2"], [["AD", Cell("1.0 ± 0.1", True)], ["F|D", "2"]], ["A note."])
    assert table.markdown() == (
        "Errors.\n\n| method | L2 |\n| --- | ---: |\n| AD | **1.0 ± 0.1** |\n| F\\|D | 2 |\n\nA note.\n"
    )
    assert table.csv() == "method,L2\nAD,1.0 ± 0.1\nF|D,2\n"


def test_how_numbers_read() -> None:
    assert [spread([], 2), spread([0.0123], 2, 100), spread([1.0, 3.0], 1)] == ["-", "1.23", "2.0 ± 1.4"]
    assert [scientific(v) for v in (None, 0.0, 8.2e-4, 0.79, 12345.0)] == ["-", "0", "8.2e-04", "0.79", "1.2e+04"]
    assert [times(v) for v in (None, 1.5, 14.0, 360.0)] == ["-", "1.50×", "14.0×", "360×"]
    assert [percent(v) for v in (2.5, 0.123, 0.0123)] == ["250 %", "12 %", "1.2 %"]
    statuses = ["finished", "diverged", "finished", "failed"]
    assert counted([{"status": status} for status in statuses]) == "2 of 4, 1 diverged, 1 failed"


# -- the report --------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Checks that elements are closed in order, and collects what a page refers to."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag == "img":
            assert given["alt"]
        self.sources += [given[key] or "" for key in ("src",) if key in given]
        self.links |= {given["href"] or ""} if "href" in given else set()
        self.anchors |= {f"#{given['id']}"} if "id" in given else set()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def reported(tmp_path: Path) -> Path:
    levels = {"ad": errors(0.02), "fd": errors(0.02, JITTER), "sfd": errors(0.01, JITTER), "taylor": errors(0.02)}
    put(tmp_path, "table-poisson", runs=run_rows("poisson", levels))
    put(tmp_path, "fig-4", cost=cost_rows(2.5, 2.1))
    assert write_report(tmp_path) == [tmp_path / "report.md", tmp_path / "report.html"]
    return tmp_path


def test_a_report_says_what_held_with_both_numbers_and_what_is_missing(reported: Path) -> None:
    text = (reported / "report.md").read_text()
    (claim,) = re.findall(r"^\| Poisson 2D: sFD is more accurate than AD .*$", text, re.MULTILINE)
    assert "| AD 1.41 %, sFD 1.11 % | **held** | sFD / AD: 0.5" in claim
    assert "paired t-test of the logarithms" in claim
    assert re.search(r"^\| sFD \|.*\| \*\*1\.0\d ± 0\.0\d\*\* \| 0\.9\d* \| 1\.11 ± 0\.39 \|", text, re.MULTILINE)
    missing = next(line for line in text.splitlines() if line.startswith("Missing"))
    for name in EXPERIMENTS:
        assert (name in missing) == (name not in ("table-poisson", "fig-4"))
    assert "![fig-4: Time and memory of a training step](figures/fig-4.png)" in text
    assert (reported / "figures" / "fig-4.png").exists()


def test_the_page_is_whole_and_needs_nothing_else(reported: Path) -> None:
    text = (reported / "report.html").read_text()
    page = Page(text)
    assert len(page.sources) == 2
    assert all(source.startswith("data:image/png;base64,iVBOR") for source in page.sources)
    assert {link for link in page.links if link.startswith("#")} <= page.anchors
    files = {link for link in page.links if not link.startswith("#")}
    assert "data/table-poisson/runs.csv" in files
    assert all((reported / link).is_file() for link in files)
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text
    assert text.count('style="--width: ') == 2  # of pictures, whose letters are as large whatever their panels
    assert '<p class="verdict held">held</p><p>Poisson 2D: sFD is more accurate than AD</p>' in text
    decided = text.count('<p class="verdict') - text.count('<p class="verdict undecided"')
    assert text.count('<svg viewBox="0 0 320 58" class="ratio"') == decided > 5
    assert text.index('class="summary"') < text.index('class="overview"') < text.index("<h2")
    assert text.count("<li>", text.index('class="summary"'), text.index("<figure>")) == 10


def test_what_is_written_on_the_page_is_text_and_not_markup(tmp_path: Path) -> None:
    rows = run_rows("poisson", {"ad": errors(0.02), "fd": errors(0.02)})
    put(tmp_path, "table-poisson", runs=rows)
    write_data(tmp_path / "data/table-poisson/environment.json", {"1": {"processor": "<script>x</script>"}})
    write_report(tmp_path)
    assert "<script>x" not in (tmp_path / "report.html").read_text()


def test_a_command_breaks_between_its_words_alone() -> None:
    text = page(Document("a", ["Run `dudx reproduce --profile cpu`."]))
    assert "<code>dudx <wbr>reproduce <wbr>--profile <wbr>cpu</code>" in text


def test_a_ratio_close_to_1_is_told_beside_its_dot() -> None:
    assert ">1.04×</text>" in ratio_picture(Ratio("a / b", 1.04, 0.9, 1.2))
    assert ">0.971×</text>" in ratio_picture(Ratio("a / b", 0.971, 0.8, 1.2, 1.8))
    assert ">2×</text>" in ratio_picture(Ratio("a / b", 2.002, 1.8, 2.3))


def test_a_folder_without_data_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There are no data in"):
        write_report(tmp_path)


def test_what_users_wrote_is_neither_a_tag_nor_a_link_in_a_report() -> None:
    wrote = "<script>alert(1)</script> [click](javascript:alert(1))\n# |"
    table = Table(wrote, ["reason"], [[wrote]], [wrote])
    claim = Claim(wrote, wrote, "held", wrote, ratio=Ratio(wrote, 1.0, 1.0, 1.0))
    part = Part(wrote, [wrote], [Judged(claim, wrote, "data.csv")], [Section(wrote, [wrote], [table])])
    document = Document(wrote, [wrote], [part], Table("", ["topic"], [[wrote]]))
    text = document.markdown(Path())
    assert "<script" not in text
    assert "](" not in text.replace(r"\](", "")
    assert sum(line.startswith("#") for line in text.splitlines()) == 3
    assert "<script>alert" not in page(document)
    assert page(document).count("<script") == 1  # our own
    assert "p < 0.05" in Table("p < 0.05", ["a"], []).markdown()
