"""Each sample's gradient of a residual in all parameters, as functions: `dudx.optim.jacobian` and `linearize`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dudx.engines.interface import Engine
from dudx.errors import InputError
from dudx.gradients.jacobian_rows import Jacobian
from dudx.network.model_checks import Model
from dudx.residual.residual_function import Residual


def jacobian(
    residual: Residual,
    model: Model,
    x: Tensor,
    engine: Engine,
    parameters: Sequence[Tensor] | None = None,
    out: Tensor | None = None,
    **data: Tensor,
) -> tuple[Tensor, Tensor]:
    """The residual and each sample's gradient of it in all parameters, from one backward pass.

    Args:
        residual: one equation or several.
        model: the network; a network whose samples influence each other is refused.
        x: the points, (B, d).
        engine: any engine, for the derivatives in the inputs.
        parameters: the order of the columns; the parameters of the network, and of networks beside it, that require
            gradients unless given. Unknown constants, an `nn.Parameter` used in the residual's function, may be
            among them.
        out: a tensor (N, P) for the Jacobian, of any precision.
        data: the data of the residual; give data named "parameters" or "out" to `linearize`.

    Returns:
        The residual (N,) and the Jacobian (N, P), without graphs. N is B for one equation; for several, the B rows of
        the first equation come first, then those of the second.

    Products with weights, scales, shifts, convolutions, embeddings and attention take one backward pass for all
    samples. Any other use of a parameter is detected and takes one backward pass per sample, so no column is left
    out. A compiled residual is evaluated without its graph.
    """
    values, linear = linearize(residual, model, x, engine, parameters, data=data)
    return values, linear.dense(out)


def linearize(
    residual: Residual,
    model: Model,
    x: Tensor,
    engine: Engine,
    parameters: Sequence[Tensor] | None = None,
    dtype: torch.dtype | None = None,
    data: Mapping[str, Tensor] | None = None,
) -> tuple[Tensor, Jacobian]:
    """The residual and its Jacobian in factors; `times(v)` and `transposed(u)` are products without (N, P).

    Arguments are those of `jacobian`; `dtype` is the precision of the Jacobian, that of the residual unless given.
    """
    if not isinstance(residual, Residual):
        raise InputError(f"The Jacobian is that of a dudx.Residual; got {type(residual).__name__}.")
    return residual._linearized(model, x, engine, parameters, dtype, data or {})
