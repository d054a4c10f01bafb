"""Recurrent networks, step by step: torch's fused kernels have no forward mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from dudx.engines.taylor.rule_table import NotCoveredError, taylor_rule

#: step(input part of the gates, state part of the gates, states) returns the new states; the first is the output.
Step = Callable[[Any, Any, Sequence[Any]], tuple[Any, ...]]


def _lstm(given: Any, before: Any, states: Sequence[Any]) -> tuple[Any, ...]:
    enter, forget, new, leave = (given + before).chunk(4, -1)
    cell = torch.sigmoid(forget) * states[1] + torch.sigmoid(enter) * torch.tanh(new)
    return torch.sigmoid(leave) * torch.tanh(cell), cell


def _gru(given: Any, before: Any, states: Sequence[Any]) -> tuple[Any, ...]:
    reset, keep, new = given.chunk(3, -1)
    reset_before, keep_before, new_before = before.chunk(3, -1)
    keep = torch.sigmoid(keep + keep_before)
    new = torch.tanh(new + torch.sigmoid(reset + reset_before) * new_before)
    return (new + keep * (states[0] - new),)


def _plain(activation: Callable[[Any], Any]) -> Step:
    return lambda given, before, states: (activation(given + before),)


_STEPS: dict[str, Step] = {
    "lstm": _lstm, "gru": _gru, "rnn_tanh": _plain(torch.tanh), "rnn_relu": _plain(torch.relu),
}  # fmt: skip


def _layer(step: Step, tokens: Any, states: Sequence[Any], weights: Sequence[Any], reverse: bool) -> tuple[Any, Any]:
    """Run one layer in one direction over tokens of shape (time, B, features)."""
    w_in, w_state, b_in, b_state, *projection = weights
    given = F.linear(tokens, w_in, b_in)
    outputs: list[Any] = []
    times = range(len(tokens))
    for time in reversed(times) if reverse else times:
        states = list(step(given[time], F.linear(states[0], w_state, b_state), states))
        if projection:
            states[0] = F.linear(states[0], projection[0])
        outputs.append(states[0])
    return torch.stack(outputs[::-1] if reverse else outputs), states


def _network(name: str) -> Callable[..., Any]:
    def rule(
        tokens: Any, states: Any, weights: Any, has_biases: Any, num_layers: int, dropout: float, train: bool,
        bidirectional: bool, batch_first: bool = False,
    ) -> Any:  # fmt: skip
        if not isinstance(has_biases, bool) or isinstance(batch_first, torch.Tensor):
            raise NotCoveredError  # packed sequences
        initial = list(states) if name == "lstm" else [states]
        directions = 2 if bidirectional else 1
        each = len(weights) // (num_layers * directions)
        if not has_biases:
            weights = _with_biases(weights, each)
            each += 2
        tokens = tokens.transpose(0, 1) if batch_first else tokens
        finals: list[Any] = []
        for layer in range(num_layers):
            results = []
            for direction in range(directions):
                number = layer * directions + direction
                own = weights[number * each : (number + 1) * each]
                first = [state[number] for state in initial]
                output, last = _layer(_STEPS[name], tokens, first, own, bool(direction))
                results.append(output)
                finals.append(last)
            tokens = torch.cat(results, -1) if bidirectional else results[0]
            if dropout and train and layer < num_layers - 1:
                tokens = F.dropout(tokens, dropout, training=True)
        tokens = tokens.transpose(0, 1) if batch_first else tokens
        return tokens, *(torch.stack(list(parts)) for parts in zip(*finals, strict=True))

    return rule


def _with_biases(weights: Sequence[Any], each: int) -> list[Any]:
    """Return weights in groups of two or three, with None inserted for the biases after the first two."""
    groups = [weights[start : start + each] for start in range(0, len(weights), each)]
    return [item for group in groups for item in (*group[:2], None, None, *group[2:])]


def _cell(name: str) -> Callable[..., Any]:
    def rule(x: Any, states: Any, w_in: Any, w_state: Any, b_in: Any = None, b_state: Any = None) -> Any:
        before = list(states) if name == "lstm" else [states]
        found = _STEPS[name](F.linear(x, w_in, b_in), F.linear(before[0], w_state, b_state), before)
        return found if name == "lstm" else found[0]

    return rule


for _name in _STEPS:
    taylor_rule(getattr(torch, _name))(_network(_name))
    taylor_rule(getattr(torch, f"{_name}_cell"))(_cell(_name))
