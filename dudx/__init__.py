"""Derivatives of neural networks with respect to their inputs, by interchangeable engines."""

from dudx.calibration import Calibration, find_eps
from dudx.compilation import CompilationWarning
from dudx.coupling import coupled
from dudx.engines.autodiff import AD
from dudx.engines.base import Engine, evaluate
from dudx.engines.difference import EFD, FD, SFD
from dudx.engines.jet_rules import taylor_rule
from dudx.engines.per_sample import PerSampleAD
from dudx.engines.taylor import Taylor
from dudx.errors import (
    CalibrationError,
    CalibrationWarning,
    CoupledModelError,
    DudxError,
    InputError,
    ModelError,
    StepNotSetError,
    UnsupportedError,
)
from dudx.explanation import Explanation, explain
from dudx.fields import Field
from dudx.isolation import frozen, isolate, mixing_rule
from dudx.operators import Along, D, Laplacian, Operator
from dudx.recommendation import recommend
from dudx.residual import Residual
from dudx.running import running_statistics
from dudx.stochastic import random_laplacian
from dudx.streaming import backward, suggested_chunk

__version__ = "0.1.0"

__all__ = [
    "AD",
    "EFD",
    "FD",
    "SFD",
    "Along",
    "Calibration",
    "CalibrationError",
    "CalibrationWarning",
    "CompilationWarning",
    "CoupledModelError",
    "D",
    "DudxError",
    "Engine",
    "Explanation",
    "Field",
    "InputError",
    "Laplacian",
    "ModelError",
    "Operator",
    "PerSampleAD",
    "Residual",
    "StepNotSetError",
    "Taylor",
    "UnsupportedError",
    "backward",
    "coupled",
    "evaluate",
    "explain",
    "find_eps",
    "frozen",
    "isolate",
    "mixing_rule",
    "random_laplacian",
    "recommend",
    "running_statistics",
    "suggested_chunk",
    "taylor_rule",
]
