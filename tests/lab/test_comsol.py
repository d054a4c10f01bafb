"""Data files in COMSOL's text format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dudx.errors import InputError
from dudx.lab.problems.comsol import read_comsol


def test_several_functions_at_several_times(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text("% x  u @ t=0  v @ t=0  u @ t=0.5  v @ t=0.5\n0 1 2 3 4\n1 5 6 7 NaN\n")
    points, values = read_comsol(path, 2, outputs=2)
    np.testing.assert_array_equal(points, [[0, 0], [1, 0], [0, 0.5]])
    np.testing.assert_array_equal(values, [[1, 2], [5, 6], [3, 4]])


def test_several_functions_without_time(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text("% x y u v @ Re=100\n0 1 2 3\n4 5 6 7\n")
    points, values = read_comsol(path, 2, outputs=2)
    np.testing.assert_array_equal(points, [[0, 1], [4, 5]])
    np.testing.assert_array_equal(values, [[2, 3], [6, 7]])


def test_times_that_do_not_belong_to_the_functions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text("% x  u @ t=0  u @ t=0.5  u @ t=1\n0 1 2 3\n")
    with pytest.raises(InputError, match="3 columns with times for 2 functions"):
        read_comsol(path, 2, outputs=2)
