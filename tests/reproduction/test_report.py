"""The report: tables, verdicts with both numbers, and nothing that users wrote as markup."""

from __future__ import annotations

import re
from dataclasses import replace

from made_up_data import EXPERIMENTS, JITTER, cost_rows, errors, results, run_rows

from dudx.errors import percent
from reproduction import report
from reproduction.analysis.claims import Claim, Ratio
from reproduction.analysis.tables import Cell, Table, counted, scientific, spread, times
from reproduction.experiment import Experiment, ExperimentResults

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


LEVELS = {"ad": errors(0.02), "fd": errors(0.02, JITTER), "sfd": errors(0.01, JITTER), "taylor": errors(0.02)}
FOUND = {
    "table-poisson": results(run_rows("poisson", LEVELS)),
    "fig-4": results(measured=cost_rows(2.5, 2.1)),
}


def picture(source: report.ReportSource) -> str:
    return f"![{source.title}](figures/{source.experiment.name}.png)"


def test_a_report_says_what_held_with_both_numbers_and_what_is_missing() -> None:
    text = report.markdown(report.report_of_profile("smoke", FOUND), picture)
    (claim,) = re.findall(r"^\| Poisson 2D: sFD is more accurate than AD .*$", text, re.MULTILINE)
    assert "| AD 1.41 %, sFD 1.11 % | **held** | sFD / AD: 0.5" in claim
    assert "paired t-test of the logarithms" in claim
    assert re.search(r"^\| sFD \|.*\| \*\*1\.0\d ± 0\.0\d\*\* \| 0\.9\d* \| 1\.11 ± 0\.39 \|", text, re.MULTILINE)
    missing = next(line for line in text.splitlines() if line.startswith("Missing"))
    for name in EXPERIMENTS:
        assert (name in missing) == (name not in ("table-poisson", "fig-4"))
    assert "![fig-4 (smoke): Time and memory of a training step](figures/fig-4.png)" in text


def test_a_report_counts_claims_by_topic_and_by_verdict() -> None:
    text = report.markdown(report.report_of_profile("smoke", FOUND), picture)
    assert "| sFD is more accurate than AD on Poisson, and less elsewhere. | 1 | 0 | 0 | 0 |" in text
    (chapter,) = report.report_of_profile("smoke", FOUND)
    assert len(chapter.claims) > 5
    counted = [sum(map(int, row[1:])) for row in chapter.verdicts().rows]  # type: ignore[arg-type]
    assert sum(counted) == len(chapter.claims)
    assert len(report.summary([chapter]).rows) == 10


def test_parts_of_the_whole_report_name_what_was_not_run() -> None:
    found = {("protocol", "table-poisson"): FOUND["table-poisson"], ("cpu", "fig-4"): FOUND["fig-4"]}
    text = report.markdown(report.whole_report(found), picture)
    assert "### table-poisson (protocol): Poisson 2D: errors by engine" in text
    assert "Not run yet: table-1 (cpu), fig-2 (cpu), fig-3 (cpu), fig-1 (protocol), table-burgers (protocol), " in text
    assert "| table-poisson | protocol | 0.1.0 | 2 |" in text
    assert text.count("\n## Part ") == len(report.PARTS)


def test_what_users_wrote_is_neither_a_tag_nor_a_link_in_a_report() -> None:
    wrote = "<script>alert(1)</script> [click](javascript:alert(1))\n# |"
    table = Table(wrote, ["reason"], [[wrote]], [wrote])
    claim = Claim(wrote, wrote, "held", wrote, ratio=Ratio(wrote, 1.0, 1.0, 1.0))
    experiment = Experiment("mine", wrote, tables=lambda _: [table], claims=lambda _: [claim], note=wrote)
    source = report.ReportSource("smoke", experiment, ExperimentResults(machines=[{"processor": wrote, "count": 1}]))
    text = report.markdown([report.Chapter(wrote, [wrote], [source])], picture)
    assert "<script" not in text
    assert "](" not in text.replace(r"\](", "")
    plain = report.markdown([report.Chapter("a", [], [replace(source, experiment=Experiment("mine", "b"))])], picture)
    assert text.count("\n#") == plain.count("\n#")  # no heading but ours
    assert "p < 0.05" in Table("p < 0.05", ["a"], []).markdown()
