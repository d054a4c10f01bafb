"""One run on several devices: what `torchrun` starts are the processes of one run."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from dudx.errors import InputError
from dudx.lab.run import training
from dudx.lab.run.folder import packed, unpack
from dudx.lab.run.ranks import ManyProcesses
from dudx.lab.run.settings import Settings

#: Processes wait for each other while one of them compiles; longer than that, one hangs.
_TIMEOUT = 600.0


def launched() -> bool:
    """Whether `torchrun` started this process as one of several."""
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def first() -> bool:
    """Whether this is the process that writes and speaks."""
    return not launched() or os.environ["RANK"] == "0"


def train(settings: Settings, out: str | Path, resume: bool = False, timeout: float = _TIMEOUT) -> dict[str, Any]:
    """Train with all processes together; only the first one writes to `out` and shows the progress."""
    with _group(settings, timeout) as ranks, contextlib.ExitStack() as stack:
        files = ranks.same(packed(Path(out)) if resume and first() else {})
        if first():
            return training.train(settings, out, resume, ranks=ranks)
        # The others do the same, and where they leave it is nobody's concern.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dudx-"))) / "run"
        unpack(files, folder)
        log = stack.enter_context((folder / "train.log").open("w", encoding="utf-8"))
        stack.enter_context(contextlib.redirect_stderr(log))
        return training.train(settings, folder, resume, ranks=ranks)


@contextmanager
def _group(settings: Settings, timeout: float) -> Iterator[ManyProcesses]:
    device = torch.device(settings.device)
    if device.type == "cuda":
        local = int(os.environ["LOCAL_RANK"])
        if local >= torch.cuda.device_count():
            raise InputError(f"There are {torch.cuda.device_count()} GPUs here for {local + 1} processes or more.")
        torch.cuda.set_device(local)
    backend = "nccl" if device.type == "cuda" else "gloo"
    try:
        torch.distributed.init_process_group(backend, timeout=timedelta(seconds=timeout))
    except (RuntimeError, ValueError) as error:
        raise InputError(f"The processes of this run do not find each other: {str(error).splitlines()[0]}.") from error
    try:
        yield ManyProcesses(device)
    finally:
        torch.distributed.destroy_process_group()
