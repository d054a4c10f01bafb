"""Errors of a prediction against a reference."""

from __future__ import annotations

import numpy as np


def l2_relative(prediction: np.ndarray, reference: np.ndarray) -> float:
    """Relative L2 error ‖û - u‖ / ‖u‖.

    Not by `np.linalg.norm`, whose last digit depends on how many threads the process has.
    """
    return float(np.sqrt(np.square(prediction - reference).sum() / np.square(reference).sum()))


def max_error(prediction: np.ndarray, reference: np.ndarray) -> float:
    """Return the largest |û - u|."""
    return float(np.abs(prediction - reference).max())


def smape(prediction: np.ndarray, reference: np.ndarray) -> float:
    """Symmetric mean absolute percentage error, 0 where both are 0.

    Where the reference is exactly 0 any other prediction scores 200 %, so problems with zeros have a floor.
    """
    scale = np.abs(prediction) + np.abs(reference)
    ratio = np.divide(2 * np.abs(prediction - reference), scale, out=np.zeros_like(scale), where=scale > 0)
    return float(100 * ratio.mean())


def scores(prediction: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """Return all metrics by name."""
    prediction, reference = np.asarray(prediction, float).reshape(-1), np.asarray(reference, float).reshape(-1)
    return {
        "l2_relative": l2_relative(prediction, reference),
        "smape": smape(prediction, reference),
        "max_error": max_error(prediction, reference),
    }
