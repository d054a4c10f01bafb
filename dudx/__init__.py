"""Derivatives of neural networks with respect to their inputs, by interchangeable engines."""

from dudx import optim
from dudx.backend.memory import keep_freed_memory
from dudx.coupling.isolated import Isolated
from dudx.coupling.isolation import frozen, isolate, mixing_rule
from dudx.coupling.mixing import Mixing
from dudx.coupling.running import running_statistics
from dudx.diagnose.explanation import Explanation, explain
from dudx.diagnose.hazards import Hazard
from dudx.diagnose.idiom_error import RelativeError
from dudx.diagnose.recommendation import Candidate, Recommendation, recommend
from dudx.diagnose.script_watch import Finding, Watch, watch
from dudx.engines.auto import Auto
from dudx.engines.autodiff import AD
from dudx.engines.combination import ByAxis, Where
from dudx.engines.coupled_automatic import CAN
from dudx.engines.difference.calibration import Calibration, find_eps
from dudx.engines.difference.finite_difference import EFD, FD, SFD
from dudx.engines.interface import Engine
from dudx.engines.nodal.cloud import Cloud
from dudx.engines.nodal.spectral import Spectral
from dudx.engines.per_sample import PerSampleAD
from dudx.engines.separated import Separated
from dudx.engines.stochastic_taylor import STDE
from dudx.engines.taylor.rule_table import taylor_rule
from dudx.engines.taylor.taylor_engine import Taylor
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
from dudx.evaluate import backward, evaluate, suggested_chunk
from dudx.network.compiled_graph import CompilationWarning
from dudx.network.detector import coupled
from dudx.network.ensemble import Ensemble, ensemble
from dudx.network.with_data import Given, given
from dudx.operators import Along, D, Laplacian, Operator, Second, random_laplacian
from dudx.residual.field import Field
from dudx.residual.residual_function import Residual
from dudx.residual.vector_calculus import advection, curl, div, grad

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
