"""The networks of a run: built from settings, stored when training ends, and rebuilt for their problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dudx.errors import InputError, first_line
from dudx.lab import file_formats
from dudx.lab.named_objects import look_up, said
from dudx.lab.problems import Problem
from dudx.lab.problems.statement_values import changed_parts, statement_values
from dudx.lab.run.coupled_view import InContext
from dudx.lab.run.networks import knowledge_taken, networks, sizes_taken
from dudx.lab.run.networks.assembled import assembled
from dudx.lab.run.networks.rescaling import Bounds
from dudx.lab.run.records import TRAINED
from dudx.lab.run.settings import Settings


def make_network(problem: Problem, settings: Settings) -> nn.Module:
    """Construct the network that the settings name, with what the problem adds to it."""
    maker = look_up(settings.network, networks(), "network")
    rescaled = problem.rescaled if settings.rescale is None else settings.rescale
    sizes = sizes_taken(maker, settings.width, settings.depth, settings.spread, settings.initialisation)
    shape = {**sizes, **knowledge_taken(maker, problem)}

    def make(inputs: int, outputs: int, bounds: Bounds | None) -> nn.Module:
        made = maker(inputs, outputs, **shape, bounds=bounds)
        if not isinstance(made, nn.Module):
            raise TypeError(f"it is a {type(made).__name__}, not a torch module")
        return made

    try:
        return assembled(problem, make, problem.domain.bounds if rescaled else None)
    except (Exception, SystemExit) as error:  # of the user's code
        raise InputError(
            f"The network {settings.network!r} cannot be made from (inputs, outputs, "
            f"{', '.join(f'{key}=...' for key in (*shape, 'bounds'))}): {said(error)}."
        ) from error


def write_trained(
    folder: Path, problem: Problem, trained: Sequence[nn.Module], spans: Sequence[tuple[float, float]] = ()
) -> None:
    """Write networks: one for the whole domain, or one per window of time (`spans`)."""
    file_formats.write_checkpoint(
        folder / TRAINED,
        {
            "inputs": list(problem.inputs), "outputs": list(problem.names), "statement": statement_values(problem),
            "networks": [dict(_inner(network).state_dict()) for network in trained],
            "spans": [list(span) for span in spans],
            "context": trained[0].context if isinstance(trained[0], InContext) else None,
        },
    )  # fmt: skip


def _inner(network: nn.Module) -> nn.Module:
    return network.model if isinstance(network, InContext) else network


class StoredNetworks(NamedTuple):
    """States of networks, their windows of time, and the context of a network whose samples influence each other."""

    networks: list[Mapping[str, Tensor]]
    spans: list[tuple[float, float]]
    context: Tensor | None


def read_trained(folder: Path, problem: Problem) -> StoredNetworks:
    """Read the networks of a run; refuse those of another problem."""
    path = folder / TRAINED
    if not path.exists():
        raise InputError(
            f"{str(folder)!r} holds no trained network, {TRAINED}: the run has not ended, or it is no folder of a run."
        )
    content = file_formats.read_checkpoint(path, "restore it from a copy, or solve the problem again")
    try:
        names = {key: tuple(content[key]) for key in ("inputs", "outputs")}
        statement, states = content["statement"], list(content["networks"])
        spans = [(float(start), float(end)) for start, end in content["spans"]]
        if not states or not all(isinstance(state, dict) for state in states):
            raise TypeError("it holds no networks")
    except (KeyError, TypeError, ValueError) as error:
        raise file_formats.DamagedError(f"{str(path)!r} is damaged: {first_line(error)}.") from error
    if names != {"inputs": problem.inputs, "outputs": problem.names}:
        raise InputError(
            f"The solution in {str(folder)!r} is of another problem: its functions {', '.join(names['outputs'])} of "
            f"{', '.join(names['inputs'])} are not {', '.join(problem.names)} of {', '.join(problem.inputs)}."
        )
    if changed := changed_parts(statement, problem):
        raise InputError(
            f"The solution in {str(folder)!r} is of another problem: {', '.join(changed)} had other values. To start "
            "from it, load it with its own problem and give it to solve(..., start=solution)."
        )
    return StoredNetworks(states, spans, content.get("context"))


def rebuilt(problem: Problem, settings: Settings, state: Mapping[str, Any]) -> nn.Module:
    """Build the network that the settings name, on the CPU, and fill it with a stored state."""
    network = make_network(problem, settings).to(dtype=getattr(torch, settings.dtype))
    fill(network, state, "The stored network does not fit the settings")
    return network.eval()


def fill(network: nn.Module, state: Mapping[str, Any], otherwise: str) -> None:
    """Give a network the function of one that is built alike; raise `otherwise` if it is not."""
    ours = network.state_dict()
    shapes = {name: tuple(value.shape) for name, value in ours.items()}
    theirs = {name: tuple(value.shape) for name, value in state.items() if isinstance(value, Tensor)}
    for name in (*shapes, *theirs):
        if shapes.get(name) != theirs.get(name):
            raise InputError(f"{otherwise}: {name} has shape {theirs.get(name)}, not {shapes.get(name)}.")
    network.load_state_dict(state)
