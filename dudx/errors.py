"""Every error the library raises on purpose: one sentence that says what is wrong and what to do."""


def first_line(error: BaseException) -> str:
    """The first line of a message without its full stop, or the kind of error where there is none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


class DudxError(Exception):
    """The base of all errors raised on purpose; the command line prints these without a traceback."""


class InputError(DudxError, ValueError):
    """An argument has the wrong shape, type, device or value."""


class ModelError(DudxError, RuntimeError):
    """The model does not behave like a map from (B, d) to (B, m)."""


class CoupledModelError(ModelError):
    """The samples of a batch influence each other, and the engine assumes that they do not."""


class StepNotSetError(DudxError, RuntimeError):
    """A finite-difference engine was asked to evaluate before it had a step."""


class UnsupportedError(DudxError, NotImplementedError):
    """The engine cannot compute what was asked; the message names one that can."""


class CalibrationError(DudxError, RuntimeError):
    """The search for a step found no usable minimum."""


class CalibrationWarning(UserWarning):
    """The search for a step ended where its result deserves a second look."""
