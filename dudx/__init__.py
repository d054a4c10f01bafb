"""Derivatives of neural networks with respect to their inputs, by interchangeable engines.

Errors and warnings are in `dudx.errors`, what `explain`, `recommend` and `watch` return in `dudx.diagnose`.
"""

from dudx import diagnose as diagnose
from dudx import errors as errors
from dudx import optim
from dudx.backend.memory import keep_freed_memory
from dudx.coupling.isolation import frozen, isolate, mixing_rule
from dudx.coupling.running_statistics import running_statistics
from dudx.diagnose import explain, recommend, watch
from dudx.engines.autodiff import AD
from dudx.engines.difference.calibration import find_eps
from dudx.engines.difference.finite_difference import EFD, FD, SFD
from dudx.engines.interface import Engine
from dudx.engines.per_sample import PerSampleAD
from dudx.engines.separated import Separated
from dudx.engines.stochastic_taylor import STDE
from dudx.engines.taylor.rule_table import taylor_rule
from dudx.engines.taylor.taylor_engine import Taylor
from dudx.errors import CoupledModelError, DudxError, InputError
from dudx.evaluate import backward, evaluate, suggested_chunk
from dudx.network.coupling_check import coupled
from dudx.network.ensemble import ensemble
from dudx.network.with_data import given
from dudx.operators import Along, D, Laplacian, Second
from dudx.residual.residual_function import Residual
from dudx.residual.vector_calculus import advection, curl, div, grad

__version__ = "0.2.0"

__all__ = [
    "AD",
    "EFD",
    "FD",
    "SFD",
    "STDE",
    "Along",
    "CoupledModelError",
    "D",
    "DudxError",
    "Engine",
    "InputError",
    "Laplacian",
    "PerSampleAD",
    "Residual",
    "Second",
    "Separated",
    "Taylor",
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
    "recommend",
    "running_statistics",
    "suggested_chunk",
    "taylor_rule",
    "watch",
]
