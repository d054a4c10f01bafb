"""Keep concatenated tensors of compiled graphs row-major in memory.

Tensors of an ensemble have the axes (members, streams, points, width). With a single stream torch mistakes such a
tensor for an image in channels-last format and concatenates it in that format, which cannot be vectorised.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.graph import Graph
from torch.fx.node import Node

_CAT = torch.ops.aten.cat.default
#: Number of axes that no image format has; images have four or five.
_MORE = 6


def rewrite(graph: Graph) -> None:
    """Concatenate tensors of four or five axes as tensors of six axes."""
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
    """Insert a call into the graph, with the shape that later nodes need."""
    node = graph.call_function(function, (given, setting))
    several = isinstance(given, list)
    values = [one.meta["val"] for one in (given if several else [given])]
    with values[0].fake_mode:
        node.meta["val"] = function(values if several else values[0], setting)
    return node
