"""Examine a network given by name, or a script."""

from __future__ import annotations

import math
import runpy
import sys
from pathlib import Path

import torch
from torch import nn

from dudx.diagnose.explanation import Explanation, explain
from dudx.diagnose.script_watch import Watch, watch
from dudx.errors import DudxError, InputError, whole_number
from dudx.lab.named_objects import look_up, said
from dudx.lab.run.networks import networks
from dudx.lab.run.preflight import refuse_beyond_memory


def examine(
    name: str, points: int, inputs: int | None, low: float, high: float, seed: int, evaluation: bool
) -> Explanation:
    """Explain a network at random points between `low` and `high` in every input."""
    for what, number in (("points", points), ("inputs", inputs)):
        if number is not None:
            whole_number(number, f"--{what}")
    refuse_beyond_memory(f"--points {points}", 64 * points * (inputs or 1))
    if inputs is not None and name in networks():
        refuse_beyond_memory(f"--inputs {inputs}", 4 * 64 * inputs)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"--low must be less than --high, and both finite; got {low} and {high}.")
    if not 0 <= seed < 2**63:
        raise InputError(f"--seed must be 0 or more; got {seed}.")
    model = _network(name, inputs, seed)
    if evaluation:
        model.eval()
    columns = inputs or _inputs(model)
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    x = (low + (high - low) * torch.rand(points, columns, dtype=torch.float64)).to(like)
    try:
        return explain(model, x)
    except DudxError as error:
        if inputs is None:
            raise InputError(f"{error} If {columns} is not its number of inputs, give --inputs.") from error
        raise
    except (Exception, SystemExit) as error:  # of the user's code
        raise InputError(f"The network {name!r} failed at {points} points: {said(error)}.") from error


def watched(script: str) -> Watch:
    """Run a script as Python would and watch the derivatives it takes."""
    path = Path(script)
    if not path.is_file():
        raise InputError(f"There is no script {script}; give the path of a Python file, --script train.py.")
    before, arguments = list(sys.path), sys.argv
    sys.path.insert(0, str(path.resolve().parent))
    sys.argv = [script]
    seen = watch()
    try:
        with seen:
            runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise InputError(
                f"The script {script} ended with {ended.code!r} and could not be watched to its end."
            ) from ended
    except Exception as error:  # of the user's code
        raise InputError(f"The script {script} failed: {said(error)}.") from error
    finally:
        sys.path[:], sys.argv = before, arguments
    return seen


def _network(name: str, inputs: int | None, seed: int) -> nn.Module:
    """Return the network that `package.module:factory` creates or names, or a built-in one by its name."""
    torch.manual_seed(seed)
    try:
        found = look_up(name, networks(), "network")
        if isinstance(found, nn.Module):
            return found
        torch.manual_seed(seed)  # again: the import may have drawn random numbers
        made = found(inputs or 2) if name in networks() else found() if callable(found) else found
    except DudxError:
        raise
    except (Exception, SystemExit) as error:  # of the user's code
        raise InputError(f"The network {name!r} cannot be made without arguments: {said(error)}.") from error
    if not isinstance(made, nn.Module):
        raise InputError(
            f"The network {name!r} is a {type(made).__name__}; it must be a torch module, or a function without "
            "arguments that returns one."
        )
    return made


def _inputs(model: nn.Module) -> int:
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.in_features:  # lazy layers have none yet
            return module.in_features
    raise InputError("The number of inputs is unknown for a network without Linear layers; give --inputs.")
