"""The check of torch's default device."""

from __future__ import annotations

import torch

from dudx.errors import InputError


def check_default_device() -> None:
    """Raise `InputError` unless the default device is the CPU, from which tensors are moved to the settings' device."""
    default = torch.get_default_device()
    if default.type != "cpu":
        raise InputError(
            f"torch.set_default_device({str(default)!r}) is in effect, and dudx.lab makes its points on the CPU before "
            'it moves them: call torch.set_default_device("cpu") first, and give device="cuda" to train there.'
        )
