"""Numbers of the paper, by table or figure."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Any

#: Size of the runs behind the published accuracy tables.
SCALE = "20 000 epochs, batch 8192, network 4 × 128 (heat: 4 × 256), adam, 26 seeds"


@functools.cache
def published(experiment: str) -> dict[str, Any]:
    """Return the published numbers of a table or figure; empty for an experiment that is not in the paper."""
    text = (resources.files("reproduction.analysis") / "published.toml").read_text(encoding="utf-8")
    return tomllib.loads(text).get(experiment, {})
