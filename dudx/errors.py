"""Errors and warnings of the library, the checks of arguments that raise them, and formats for their sentences.

Every error is one sentence that says what is wrong and what to do.
"""

from __future__ import annotations

import math
import numbers
from typing import Any, TypeGuard, get_args


def first_line(error: BaseException) -> str:
    """Return the first line of a message without its full stop, or the type of an error without message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def percent(share: float | None) -> str:
    """Format a share in per cent, with two significant digits and all digits before the point; None is "-"."""
    if share is None:
        return "-"
    value = 100 * share
    if value > 1e6:
        return "infinite" if math.isinf(value) else "over 10⁶ %"
    return f"{value:.2g} %" if abs(value) < 10 else f"{value:.0f} %"


def mean_percent(mean: float, deviation: float | None = None) -> str:
    """Format a mean share ± its deviation in per cent, without the unit: two decimals, or two digits of the mean."""
    digits = max(2, 1 - math.floor(math.log10(100 * mean))) if mean > 0 else 2
    return f"{100 * mean:.{digits}f}" + ("" if deviation is None else f" ± {100 * deviation:.{digits}f}")


class DudxError(Exception):
    """Base class of all errors raised on purpose; the command line prints these without a traceback.

    >>> try:
    ...     dudx.FD(step=-1.0)
    ... except dudx.DudxError as error:
    ...     print(error)
    The step must be positive and finite; got -1.0.
    """


class InputError(DudxError, ValueError):
    """An argument has the wrong shape, type, device or value.

    >>> dudx.evaluate(torch.sin, torch.rand(5), [dudx.D(0)], dudx.AD())
    Traceback (most recent call last):
    dudx.errors.InputError: The points must have shape (B, d), one row per point; got shape (5,).
    """


class ModelError(DudxError, RuntimeError):
    """The model does not behave like a map from (B, d) to (B, m).

    >>> dudx.evaluate(lambda x: x[:, 0], torch.rand(5, 2), [dudx.D(0)], dudx.AD())
    Traceback (most recent call last):
    dudx.errors.ModelError: The model returned shape (5,) for 5 points; it must return (B, m); add unsqueeze(1) ...
    """


class CoupledModelError(ModelError):
    """The samples of a batch influence each other, and the engine assumes that they do not.

    >>> dudx.evaluate(lambda x: x - x.mean(0), torch.rand(5, 2), [dudx.D(0)], dudx.AD())
    Traceback (most recent call last):
    dudx.errors.CoupledModelError: The samples of this network's batch influence each other, ...
    """


class StepNotSetError(DudxError, RuntimeError):
    """A finite-difference engine was asked to evaluate before it had a step.

    >>> dudx.evaluate(torch.sin, torch.rand(5, 2), [dudx.D(0)], dudx.FD())
    Traceback (most recent call last):
    dudx.errors.StepNotSetError: FD has no step yet: find one with FD().calibrated(model, x, operators), ...
    """


class UnsupportedError(DudxError, NotImplementedError):
    """The engine cannot compute the request; the message names one that can.

    >>> dudx.evaluate(torch.special.bessel_j0, torch.rand(5, 2), [dudx.D(0)], dudx.Taylor())
    Traceback (most recent call last):
    dudx.errors.UnsupportedError: ...
    """


class CalibrationError(DudxError, RuntimeError):
    """The search for a step found no usable minimum.

    >>> dudx.find_eps(lambda x: x * float("nan"), torch.rand(50, 2), order=1)
    Traceback (most recent call last):
    dudx.errors.CalibrationError: ...
    """


class CalibrationWarning(UserWarning):
    """The result of a step search should be checked.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", dudx.errors.CalibrationWarning)  # for a linear function any step is right
    ...     curve = dudx.find_eps(lambda x: 2 * x, torch.rand(50, 2), order=1)
    """


class KinkWarning(UserWarning):
    """A second derivative was requested of a piecewise linear network.

    >>> import warnings
    >>> network = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    >>> with warnings.catch_warnings(record=True) as seen:
    ...     warnings.simplefilter("always")
    ...     flat = dudx.evaluate(network, torch.rand(5, 2), dudx.Laplacian(), dudx.AD())
    >>> [warning.category.__name__ for warning in seen]
    ['KinkWarning']
    """


class NotFiniteWarning(UserWarning):
    """Derivatives are infinite or NaN at finite points. Checked when an engine first evaluates a network.

    >>> import warnings
    >>> def bell(x):
    ...     return torch.exp(-torch.linalg.vector_norm(x, dim=1, keepdim=True) ** 2)  # the norm has no derivative at 0
    >>> with warnings.catch_warnings(record=True) as seen:
    ...     warnings.simplefilter("always")
    ...     laplacian = dudx.evaluate(bell, torch.zeros(1, 2), dudx.Laplacian(), dudx.Taylor())
    >>> [warning.category.__name__ for warning in seen]
    ['NotFiniteWarning']
    """


class SlowRuleWarning(UserWarning):
    """Taylor takes torch's own derivatives of a function that it has no rule for: exact, but slower. Said once each.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", dudx.errors.SlowRuleWarning)
    ...     slope = dudx.evaluate(lambda x: x.cumprod(1), torch.rand(5, 2), dudx.D(0), dudx.Taylor())
    """


class CompilationWarning(UserWarning):
    """Compilation is not possible; the computation goes on without it.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", dudx.errors.CompilationWarning)  # to require compilation
    ...     heat = dudx.Residual(lambda u: u.t - u.xx, inputs=("x", "t"), compile=True)
    """


def positive_step(value: object, name: str = "step") -> float:
    """Check that a value is a positive, finite number and return it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputError(f"The {name} must be a positive number; got {value!r}.")
    number = float(value)
    if not math.isfinite(number) or number <= 0:
        raise InputError(f"The {name} must be positive and finite; got {number!r}.")
    return number


def difference_accuracy(value: object, side: str = "central") -> int:
    """Check an order of accuracy: even for central stencils, any for one-sided ones."""
    if not is_whole(value) or (side == "central" and value % 2):
        what = (
            "central difference must be an even number, 2" if side == "central" else "one-sided one a whole number, 1"
        )
        raise InputError(f"The accuracy of a {what} or more; got {value!r}.")
    return int(value)


def one_of(value: object, words: Any, name: str) -> Any:
    """Check that a value is one of the words of a `Literal` and return it."""
    if value not in get_args(words):
        raise InputError(f"{name} must be one of {', '.join(map(repr, get_args(words)))}; got {value!r}.")
    return value


def is_whole(value: object, at_least: int = 1) -> TypeGuard[int]:
    """Return True for an integer, of Python or NumPy and not a bool, that is not below a bound."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= at_least


def whole_number(value: object, name: str, at_least: int = 1) -> int:
    """Check that a value is a whole number of at least `at_least` and return it."""
    if not is_whole(value, at_least):
        raise InputError(f"{name} must be a whole number, {at_least} or more; got {value!r}.")
    return int(value)
