"""Training with an engine that combines samples itself."""

from pathlib import Path

from dudx.lab import make_settings, train


def test_it_trains_by_its_name(tmp_path: Path) -> None:
    result = train(make_settings("poisson", "smoke", engine="cloud", epochs=4), tmp_path)
    assert result["status"] == "finished"
