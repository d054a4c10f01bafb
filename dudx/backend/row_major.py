"""Tensors put together in compiled graphs stay row by row in memory.

The members of an ensemble make four axes of (streams, points, width). Of such a tensor with a single stream, torch
cannot tell whether it is an image whose channels come last, takes it for one, and scatters what it puts together: the
loops that write and read it then go number by number.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.graph import Graph
from torch.fx.node import Node

_CAT = torch.ops.aten.cat.default
#: Images have four axes or five.
_MORE = 6


def rewrite(graph: Graph) -> None:
    """Put tensors of four or five axes together as tensors of six, which no image has."""
    for node in graph.find_nodes(op="call_function", target=_CAT):
        parts, axes = node.args[0], node.meta["val"].ndim
        if not _MORE - 2 <= axes < _MORE or not isinstance(parts, list | tuple):
            continue
        dim = (int(node.args[1]) if len(node.args) > 1 else 0) % axes  # type: ignore[arg-type]
        added = list(range(_MORE - axes))
        with graph.inserting_before(node):
            longer = list(parts)
            for _ in added:
                longer = [_made(graph, torch.ops.aten.unsqueeze.default, part, 0) for part in longer]
            together = _made(graph, _CAT, longer, dim + len(added))
            node.replace_all_uses_with(_made(graph, torch.ops.aten.squeeze.dims, together, added))
        graph.erase_node(node)


def _made(graph: Graph, function: Any, given: Any, setting: Any) -> Node:
    """A node of the graph that knows its shape, as those after it ask for it."""
    node = graph.call_function(function, (given, setting))
    several = isinstance(given, list)
    values = [one.meta["val"] for one in (given if several else [given])]
    with values[0].fake_mode:
        node.meta["val"] = function(values if several else values[0], setting)
    return node
