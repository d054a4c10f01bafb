"""Find out what makes derivatives wrong or slow for a given network or script."""

from dudx.coupling.mixing_detection import MixingModule
from dudx.diagnose.explanation import Explanation, explain
from dudx.diagnose.hazards import Hazard
from dudx.diagnose.measured_errors import RelativeError
from dudx.diagnose.recommendation import Candidate, Recommendation, recommend
from dudx.diagnose.script_watch import Finding, Watch, watch
from dudx.diagnose.thorough_check import Checked, Report, check

__all__ = [
    "Candidate",
    "Checked",
    "Explanation",
    "Finding",
    "Hazard",
    "MixingModule",
    "Recommendation",
    "RelativeError",
    "Report",
    "Watch",
    "check",
    "explain",
    "recommend",
    "watch",
]
