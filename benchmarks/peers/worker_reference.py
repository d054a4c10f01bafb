"""Reference for all subjects: raw autograd in double precision, in slices, so that any batch fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from harness import serve
from peers.worker_raw import Raw

ROWS = 2**14  # per slice, over all inputs: each input has its own gradient


class Reference(Raw):
    """Reference step, not timed; the residual is requested first and one pass gives both answers."""

    def __init__(self, case: Mapping[str, Any]):
        super().__init__(case)
        self.model.double()
        self.points = self.x.double()

    def residual(self) -> np.ndarray:
        self.step()
        return np.concatenate(self.parts)

    def gradient(self) -> np.ndarray:
        return self.collected()

    def step(self) -> None:
        self.parts: list[np.ndarray] = []
        for points in self.points.split(max(1, ROWS // self.points.shape[1])):
            self.x = points
            part = self.compute()
            (part.square().sum() / len(self.points)).backward()
            self.parts.append(part.detach().numpy())


if __name__ == "__main__":
    serve(Reference)
