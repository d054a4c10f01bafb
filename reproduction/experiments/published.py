"""The paper's numbers, by the table or figure they stand in."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Any

#: What the published accuracy tables were made with.
SCALE = "20 000 epochs, batch 8192, network 4 × 128 (heat: 4 × 256), adam, 26 seeds"


@functools.cache
def published(experiment: str) -> dict[str, Any]:
    """What is published of a table or figure; nothing for an experiment of our own."""
    text = (resources.files("reproduction.experiments") / "published.toml").read_text(encoding="utf-8")
    return tomllib.loads(text).get(experiment, {})
