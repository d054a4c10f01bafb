"""Layers on jets, written in terms of functions with rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.backend import attention_layers, norm_layers
from dudx.backend.attention_layers import may_be_packed
from dudx.engines.taylor.jet import Jet
from dudx.engines.taylor.rule_helpers import is_jet
from dudx.engines.taylor.rule_table import RULES, NotCoveredError, taylor_rule
from dudx.engines.taylor.rules.linear_maps import linear
from dudx.errors import UnsupportedError

taylor_rule(F.layer_norm, torch.layer_norm)(norm_layers.layer_norm)
taylor_rule(F.group_norm, torch.group_norm)(norm_layers.group_norm)
taylor_rule(F.rms_norm, torch.rms_norm)(norm_layers.rms_norm)
taylor_rule(F.instance_norm)(norm_layers.instance_norm)
taylor_rule(torch.instance_norm)(norm_layers.in_torch_order(norm_layers.instance_norm))
taylor_rule(F.scaled_dot_product_attention)(attention_layers.scaled_dot_product_attention)


@taylor_rule(F.multi_head_attention_forward)
def multi_head_attention(*args: Any, **kwargs: Any) -> tuple[Jet, Jet | None]:
    return attention_layers.multi_head_attention(attention_layers.attended, *args, **kwargs)


@taylor_rule(F.batch_norm)
def batch_norm(
    x: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Jet:  # fmt: skip
    if training or running_mean is None or running_var is None:
        raise UnsupportedError(
            "Taylor differentiates each sample on its own, and batch norm in training mode mixes samples; use "
            "dudx.isolate(model, x) as the model, or model.eval()."
        )
    return norm_layers.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)


taylor_rule(torch.batch_norm)(norm_layers.in_torch_order(batch_norm))


@taylor_rule(F.glu)
def glu(x: Any, dim: int = -1) -> Jet:
    value, gate = x.chunk(2, dim)
    return value * torch.sigmoid(gate)


# Tokens that are jets are not packed.
taylor_rule(may_be_packed)(lambda tokens, mask: False)


def _convolution(function: Callable[..., Tensor]) -> Callable[..., Jet]:
    """Return the rule of a convolution: linear for a constant kernel; the bias changes only the value."""

    def rule(x: Jet, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any) -> Jet:
        if is_jet(weight) or is_jet(bias):
            raise NotCoveredError
        out = linear(lambda t: function(t, weight, None, *args, **kwargs))(x)
        return out if bias is None else out + norm_layers.by_channel(out, bias)

    return rule


for _function in (F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d):
    RULES[_function] = _convolution(_function)
