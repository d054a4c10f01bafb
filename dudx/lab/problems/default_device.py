"""Where the laboratory makes its tensors."""

from __future__ import annotations

import torch

from dudx.errors import InputError


def refuse_another_default() -> None:
    """The laboratory makes points and networks on the CPU and moves them by itself, to the device of the settings."""
    default = torch.get_default_device()
    if default.type != "cpu":
        raise InputError(
            f"torch.set_default_device({str(default)!r}) is in effect, and dudx.lab makes its points on the CPU before "
            'it moves them: call torch.set_default_device("cpu") first, and give device="cuda" to train there.'
        )
