"""Scripted and traced modules on jets: their graph, one operation after the other.

Torch's own interpreter takes nothing but tensors, and what it makes of a graph on its way to machine code loses the
tangents of forward mode without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dudx.engines.taylor.jet import NotFollowedError

#: What begins and ends containers, by the kind of node.
_CONTAINERS = {"prim::ListConstruct": list, "prim::TupleConstruct": tuple}
_UNPACKED = ("prim::ListUnpack", "prim::TupleUnpack")
#: Nodes that hand on what they get: the checks of types have been made.
_HANDED_ON = ("prim::unchecked_cast", "prim::unchecked_unwrap_optional", "aten::detach_copy", "prim::data")


def _appended(items: list[Any], item: Any) -> list[Any]:
    items.append(item)
    return items


#: What scripts do with lists, which torch's operators take only if they hold nothing but tensors or numbers.
_OF_LISTS: dict[str, Callable[..., Any]] = {
    "aten::append": _appended, "aten::__getitem__": lambda items, i: items[i], "aten::len": len, "aten::list": list,
    "aten::add": lambda a, b: [*a, *b], "prim::TupleIndex": lambda items, i: items[i],
    "aten::slice": lambda items, start, stop, step: items[start:stop:step],
}  # fmt: skip


def is_script(function: object) -> bool:
    """Whether it is a method of a scripted or traced module."""
    return isinstance(function, torch.ScriptMethod)


def interpreted(method: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The method called with jets."""
    graph = method.inlined_graph
    names = [argument.name for argument in method.schema.arguments[1:]]
    defaults = {argument.name: argument.default_value for argument in method.schema.arguments[1:]}
    given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
    inputs = [value.debugName() for value in graph.inputs()]
    values = dict(zip(inputs, [method.owner, *(given[name] for name in names)], strict=True))
    _run(graph.nodes(), values)
    results = tuple(values[output.debugName()] for output in graph.outputs())
    return results[0] if len(results) == 1 else results


def _run(nodes: Any, values: dict[str, Any]) -> None:
    for node in nodes:
        results = _results(node, values)
        for output, result in zip(node.outputs(), results, strict=True):
            values[output.debugName()] = result


def _block(block: Any, values: dict[str, Any]) -> list[Any]:
    _run(block.nodes(), values)
    return [values[output.debugName()] for output in block.outputs()]


def _results(node: Any, values: dict[str, Any]) -> Sequence[Any]:
    kind = node.kind()
    given = [values[value.debugName()] for value in node.inputs()]
    if kind == "prim::Constant":
        return [_constant(node)]
    if kind == "prim::GetAttr":
        return [getattr(given[0], node.s("name"))]
    if kind in _CONTAINERS:
        return [_CONTAINERS[kind](given)]
    if kind in _UNPACKED:
        return list(given[0])
    if kind in _HANDED_ON:
        return given[:1]
    if kind == "prim::If":
        taken, other = node.blocks()
        return _block(taken if given[0] else other, values)
    if kind == "prim::Loop":
        return _loop(node, given, values)
    if kind == "prim::RaiseException":
        raise RuntimeError(given[0])
    if kind in ("aten::__is__", "aten::__isnot__"):
        return [(given[0] is given[1]) == (kind == "aten::__is__")]
    if given and isinstance(given[0], list | tuple) and kind in _OF_LISTS:
        return [_OF_LISTS[kind](*given)]
    return _operated(node, given)


def _constant(node: Any) -> Any:
    # A function as a constant is what an inlined call has left.
    return None if node.output().type().kind() == "FunctionType" else node.output().toIValue()


def _loop(node: Any, given: list[Any], values: dict[str, Any]) -> list[Any]:
    (body,) = node.blocks()
    most, going, *carried = given
    names = [value.debugName() for value in body.inputs()]
    number = 0
    while going and number < most:
        values.update(zip(names, [number, *carried], strict=True))
        going, *carried = _block(body, values)
        number += 1
    return carried


def _operated(node: Any, given: list[Any]) -> Sequence[Any]:
    """An operator of torch's library, by the overload that the graph names."""
    name, _, overload = node.schema().partition("(")[0].partition(".")
    space, _, operator = name.partition("::")
    try:
        function = getattr(getattr(getattr(torch.ops, space), operator), overload or "default")
    except (AttributeError, RuntimeError):
        raise NotFollowedError(
            f"Taylor cannot follow {node.kind()} in a scripted or traced module; use the module it was made of."
        ) from None
    args, kwargs = [], {}
    for argument, value in zip(function._schema.arguments, given, strict=True):
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    result = function(*args, **kwargs)
    return [result] if node.outputsSize() == 1 else result
