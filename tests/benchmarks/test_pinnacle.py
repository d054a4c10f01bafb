"""PINNacle's problems: their statements, their references, and the runner."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import dudx
from benchmarks.pinnacle import run as runner
from benchmarks.pinnacle.fields import GridFunction, gaussian_field
from benchmarks.pinnacle.one_run import FOLDER, limit_of, one_run, stated
from benchmarks.pinnacle.problems import burgers2d_c
from benchmarks.pinnacle.references import spectral
from benchmarks.pinnacle.references.exact import FORMULAS
from benchmarks.pinnacle.references.registry import SOURCES
from benchmarks.pinnacle.references.samples import Computed
from benchmarks.pinnacle.table import ORDER, best_of, median, published, write_page
from examples.run_gallery import PROFILES, names_in

F64 = torch.float64
NAMES = names_in(FOLDER)
#: Formulas that are references of the package, which tests them.
ELSEWHERE = ("burgers1d_c", "poisson2d_c", "heat2d_cg")


@pytest.mark.parametrize("name", NAMES)
def test_every_problem_is_stated_without_doubts(name: str) -> None:
    problem, with_data = stated(name)
    assert problem.warnings == ()
    assert not with_data
    assert problem.title.lower().replace("-", "_") == name


def test_every_problem_has_a_reference_a_place_and_published_figures() -> None:
    assert set(NAMES) == set(SOURCES)
    assert set(NAMES) <= set(ORDER) == set(published()["problems"])
    assert {best_of(figure)[1] for figure in published()["problems"].values()} <= set(published()["sources"])


@pytest.mark.parametrize("name", sorted(set(FORMULAS) - set(ELSEWHERE)))
def test_formulas_solve_the_equations_and_satisfy_the_conditions(name: str) -> None:
    problem, _ = stated(name)

    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(FORMULAS[name].function(x.detach().numpy()))

    low, high = (torch.tensor(corner, dtype=F64) for corner in problem.domain.bounds)
    middle = (low + high) / 2
    # Away from the boundary, beyond which a formula need not hold.
    x = middle + 0.6 * (problem.domain.sobol(40, dtype=F64) - middle)
    engine = dudx.FD(2e-3, accuracy=4)
    found = problem.residual(model, x, engine)
    wrong = problem.residual(lambda x: model(x) * (1 + 0.01 * x[:, :1]), x, engine)
    for r, other in zip(*(v if isinstance(v, tuple) else (v,) for v in (found, wrong)), strict=True):
        assert float(r.detach().abs().max()) < 0.02 * float(other.detach().abs().max())
    size = float(model(problem.domain.sobol(100, dtype=F64)).abs().max())
    for condition in problem.conditions:
        if condition.kind != "data":
            x, given = condition.sample(20, torch.Generator().manual_seed(0), torch.device("cpu"), F64)
            misfit = condition.residual(model, x, dudx.FD(1e-4, accuracy=2), **given)
            for one in misfit if isinstance(misfit, tuple) else (misfit,):
                assert float(one.detach().abs().max()) < 1e-6 * size


def test_noisy_measurements_are_those_of_the_solution() -> None:
    for name in ("pinv", "hinv"):
        problem, _ = stated(name)
        (data,) = problem.conditions.data
        noise = data.given["u"].numpy()[:, 0] - FORMULAS[name].function(data.points.numpy())[:, 0]
        assert len(noise) == 2500
        assert abs(noise.mean()) < 0.006  # three deviations of the mean of 2500
        assert 0.095 < noise.std() < 0.105


def test_the_suites_fields_are_drawn_again() -> None:
    field = gaussian_field()
    # The share of the brighter colour in the suite's picture of the field that has two values.
    assert (field > 0).mean() == 0.5199432373046875
    values = GridFunction(np.exp(field[:9, :9]))
    x, y = torch.rand(2, 30, 1, dtype=F64)
    ticks = torch.linspace(0, 1, 9, dtype=F64)[:, None]
    torch.testing.assert_close(values(ticks, 0 * ticks + 0.25)[:, 0], torch.from_numpy(values.values[2]))
    h = 1e-7
    torch.testing.assert_close(values.gradient(x, y)[0], (values(x + h, y) - values(x - h, y)) / (2 * h))
    torch.testing.assert_close(values.gradient(x, y)[1], (values(x, y + h) - values(x, y - h)) / (2 * h))


def test_the_suites_initial_state_is_read_from_its_files(tmp_path: Path) -> None:
    ours = burgers2d_c.coefficients(tmp_path)
    ticks = np.linspace(0, 4, 30)
    x, y = (axis.reshape(-1, 1) for axis in np.meshgrid(ticks, ticks))
    for name, one in zip(burgers2d_c.FILES, 2 * ours, strict=True):
        np.savetxt(tmp_path / name, np.column_stack([x, y, burgers2d_c.waves(x, y) @ one]))
    np.testing.assert_allclose(
        burgers2d_c.waves(x, y) @ burgers2d_c.coefficients(tmp_path).T, 2 * burgers2d_c.waves(x, y) @ ours.T, atol=1e-9
    )
    problem, with_data = stated("burgers2d_c", tmp_path)
    assert with_data
    assert problem.warnings == ()


def test_a_spectral_reference_begins_with_the_state_and_follows_the_equation() -> None:
    points, values = spectral.kuramoto_sivashinsky(False, None)
    x, u = points[:128, 0], values.reshape(101, 128)
    np.testing.assert_allclose(u[0], np.cos(x) * (1 + np.sin(x)), atol=1e-12)
    k = 1j * np.fft.fftfreq(128, 1 / 128)

    def along(u: np.ndarray, order: int) -> np.ndarray:
        return np.fft.ifft(np.fft.fft(u) * k**order).real

    later = (u[:-4] - 8 * u[1:-3] + 8 * u[3:-1] - u[4:]) / (12 * 0.01)
    middle = u[2:-2]
    terms = [100 / 16 * middle * along(middle, 1), 100 / 256 * along(middle, 2), 100 / 16**4 * along(middle, 4)]
    residual = np.abs(later + sum(terms)).max(axis=1)
    assert residual[0] < 0.01 * np.abs(later[0]).max()  # later on it is too fast for differences of a hundredth


def test_references_are_kept_with_the_agreement_of_two_resolutions(tmp_path: Path) -> None:
    calls = []

    def compute(fine: bool, data: Path | None) -> tuple[np.ndarray, np.ndarray]:
        calls.append(fine)
        return np.arange(3.0)[:, None], np.array([[1.0], [2.0], [np.nan]]) * (1 if fine else 1.1)

    source = Computed(compute, "by hand")
    found = source.samples(tmp_path / "one.npz", None)
    assert found.agreement == pytest.approx(0.1)
    again = source.samples(tmp_path / "one.npz", None)
    assert calls == [True, False]
    assert again.agreement == found.agreement
    np.testing.assert_array_equal(again.values, found.values)
    Computed(compute, "otherwise").samples(tmp_path / "one.npz", None)
    assert len(calls) == 4


def test_runs_are_kept_counted_and_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, int]] = []

    def make(name: str, seed: int, to: Path) -> int:
        made.append((name, seed))
        if name == "ks":
            return -9
        row = one_run(name, seed, 0.01, PROFILES["smoke"][1], tmp_path, tmp_path / "references", None)
        assert row is not None
        runner.file_formats.write_json(to, row)
        return 0

    said: list[str] = []
    runner.run(["wave1d_c", "ks"], [0], tmp_path, 0.01, False, make, said.append)
    assert made == [("wave1d_c", 0), ("ks", 0)]
    assert "failed, the process was ended by signal 9" in said[-1]
    row = runner.file_formats.read_json(tmp_path / "wave1d_c_0.json", dict)
    assert 0 < row["error"] < 10
    assert row["errors"] == {"u": pytest.approx(row["error"])}
    assert row["agreement"] is None
    assert (tmp_path / "wave1d_c_0.png").exists()
    table = (tmp_path / "README.md").read_text()
    assert "| [Wave1d-C](wave1d_c_0.png) |" in table
    assert "2 runs of 2 problems, 1 of them failed" in table
    runner.run(["wave1d_c", "ks"], [0], tmp_path, 0.01, False, make, said.append)
    assert len(made) == 2
    runner.run(["wave1d_c", "ks"], [0], tmp_path, 0.01, True, make, said.append)
    assert made[2:] == [("ks", 0)]
    runner.run(["wave1d_c"], [1, 2], tmp_path, 0.01, False, lambda *_: 130, said.append)
    assert "interrupted" in said[-1]
    assert not (tmp_path / "wave1d_c_1.json").exists()
    page = tmp_path / "page.md"
    page.write_text("Before\n\n<!-- table -->\nold\n<!-- end -->\n\nAfter\n")
    write_page(tmp_path, page)
    assert "old" not in page.read_text()
    assert page.read_text().startswith("Before")
    assert page.read_text().endswith("<!-- end -->\n\nAfter\n")


@pytest.mark.slow
def test_a_run_is_a_process_of_its_own(tmp_path: Path) -> None:
    options = ["--minutes", "0.01", "--profile", "smoke", "--out", str(tmp_path)]
    assert runner.in_process("pnd", 1, tmp_path / "row.json", options) == 0
    assert runner.file_formats.read_json(tmp_path / "row.json", dict)["seed"] == 1


def test_a_failed_run_counts_as_the_worst() -> None:
    assert median([{"error": 0.1}, {"failed": "so"}, {"error": 0.3}]) == 0.3
    assert median([{"error": 0.1}, {"failed": "so"}]) is None


def test_time_and_two_dimensions_have_twice_the_limit() -> None:
    assert [limit_of(stated(name)[0], 5) for name in ("ks", "heat2d_ms", "pnd")] == [5, 10, 5]
