"""Training with engines that choose, draw or combine."""

from pathlib import Path

import pytest

from dudx.lab import make_settings, train


@pytest.mark.parametrize("engine", ["auto", "cloud"])
def test_it_trains_by_its_name(engine: str, tmp_path: Path) -> None:
    result = train(make_settings("poisson", "smoke", engine=engine, epochs=4), tmp_path)
    assert result["status"] == "finished"
    if engine == "auto":
        assert result["step"] in ("Taylor", "AD")
