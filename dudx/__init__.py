"""Derivatives of neural networks with respect to their inputs, by interchangeable engines."""

from dudx import optim
from dudx.border import evaluate
from dudx.calculus import advection, curl, div, grad
from dudx.compile.graphs import CompilationWarning
from dudx.coupling.explanation import Explanation, explain
from dudx.coupling.hazards import Hazard
from dudx.coupling.isolated import Isolated
from dudx.coupling.isolation import frozen, isolate, mixing_rule
from dudx.coupling.measuring import RelativeError
from dudx.coupling.mixing import Mixing
from dudx.coupling.running import running_statistics
from dudx.engines.auto import Auto
from dudx.engines.autodiff import AD
from dudx.engines.base import Engine
from dudx.engines.combination import ByAxis, Where
from dudx.engines.coupled_automatic import CAN
from dudx.engines.difference.calibration import Calibration, find_eps
from dudx.engines.difference.engine import EFD, FD, SFD
from dudx.engines.nodal.cloud import Cloud
from dudx.engines.nodal.spectral import Spectral
from dudx.engines.per_sample import PerSampleAD
from dudx.engines.randomised import STDE
from dudx.engines.separated import Separated
from dudx.engines.stein import Stein
from dudx.engines.taylor.engine import Taylor
from dudx.engines.taylor.table import taylor_rule
from dudx.errors import (
    CalibrationError,
    CalibrationWarning,
    CoupledModelError,
    DudxError,
    InputError,
    KinkWarning,
    ModelError,
    SlowRuleWarning,
    StepNotSetError,
    UnsupportedError,
)
from dudx.fields import Field
from dudx.memory import keep_freed_memory
from dudx.network.detect import coupled
from dudx.network.ensemble import Ensemble, ensemble
from dudx.network.given import Given, given
from dudx.operators import Along, D, Laplacian, Operator, Second
from dudx.random_operators import random_laplacian
from dudx.recommendation import Candidate, Recommendation, recommend
from dudx.residual import Residual
from dudx.streaming import backward, suggested_chunk
from dudx.watch import Finding, Watch, watch

__version__ = "0.1.0"

__all__ = [
    "AD",
    "CAN",
    "EFD",
    "FD",
    "SFD",
    "STDE",
    "Along",
    "Auto",
    "ByAxis",
    "Calibration",
    "CalibrationError",
    "CalibrationWarning",
    "Candidate",
    "Cloud",
    "CompilationWarning",
    "CoupledModelError",
    "D",
    "DudxError",
    "Engine",
    "Ensemble",
    "Explanation",
    "Field",
    "Finding",
    "Given",
    "Hazard",
    "InputError",
    "Isolated",
    "KinkWarning",
    "Laplacian",
    "Mixing",
    "ModelError",
    "Operator",
    "PerSampleAD",
    "Recommendation",
    "RelativeError",
    "Residual",
    "Second",
    "Separated",
    "SlowRuleWarning",
    "Spectral",
    "Stein",
    "StepNotSetError",
    "Taylor",
    "UnsupportedError",
    "Watch",
    "Where",
    "advection",
    "backward",
    "coupled",
    "curl",
    "div",
    "ensemble",
    "evaluate",
    "explain",
    "find_eps",
    "frozen",
    "given",
    "grad",
    "isolate",
    "keep_freed_memory",
    "mixing_rule",
    "optim",
    "random_laplacian",
    "recommend",
    "running_statistics",
    "suggested_chunk",
    "taylor_rule",
    "watch",
]
