"""Every private part of torch that is used, each with its reason and what happens where a version of torch lacks it.

Nothing of the compiler is imported before it is needed: it takes seconds, and most who import us compile nothing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import operator
import subprocess
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx.graph import Graph
from torch.nn.modules import batchnorm as _batchnorm
from torch.overrides import resolve_name
from torch.utils import _python_dispatch

#: How many modes look on at torch's functions. A jet's operators go through torch's dispatch only then, as it takes
#: longer than most rules. Where torch does not tell, they always do.
modes_active: Callable[[], int] = getattr(torch._C, "_len_torch_function_stack", lambda: 1)

#: Whether torch.func's transforms are at work, inside of which rows of a batch cannot be told apart. Where torch does
#: not tell, each sample's gradient is computed row by row.
transforms_active: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)


def mapped() -> bool:
    """Whether torch.func.vmap is at work, inside of which the numbers of a tensor cannot be looked at.

    Where torch does not tell, any transform counts.
    """
    if not transforms_active():
        return False
    functorch: Any = getattr(torch._C, "_functorch", None)
    if not hasattr(functorch, "get_interpreter_stack") or not hasattr(functorch, "TransformType"):
        return True
    return any(layer.key() == functorch.TransformType.Vmap for layer in functorch.get_interpreter_stack() or ())


@contextlib.contextmanager
def lasting() -> Iterator[None]:
    """Make constants that may be kept and used anywhere: neither of inference mode nor of a transform at work.

    What is made inside of torch.func's transforms belongs to them, and torch ends in an internal error where it is met
    again. Without it that is how it is.
    """
    known = hasattr(torch._C, "_DisableFuncTorch") and not torch.compiler.is_compiling()  # which does not know it
    apart: Any = torch._C._DisableFuncTorch if known else contextlib.nullcontext
    with torch.inference_mode(False), torch.no_grad(), apart():
        yield


#: Operators of torch's own library, which exported graphs are made of. Where they have another name, such a graph is
#: differentiated operator by operator in the general way.
Overload: type = getattr(getattr(torch, "_ops", None), "OpOverload", type(None))


@functools.lru_cache(maxsize=1)
def _forward_mode_ready() -> None:
    """Use forward mode once, since torch warns of what it imports for it, which is none of the user's business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.func.jvp(torch.sin, (torch.zeros(1),), (torch.ones(1),))


def jvp(function: Callable[..., Any], point: tuple[Any, ...], along: tuple[Any, ...]) -> tuple[Any, Any]:
    """`torch.func.jvp` without its warnings."""
    if not torch.compiler.is_compiling():
        _forward_mode_ready()
    return torch.func.jvp(function, point, along)[:2]


def function_name(function: Any) -> str:
    """A function by a name that can be pasted."""
    if isinstance(function, Overload):
        return f"torch.ops.{function}"
    named = resolve_name(function) if callable(function) and not hasattr(function, "forward") else None
    return named or getattr(function, "__qualname__", None) or type(function).__qualname__


#: The class below torch.autograd.Function, which every call of such a function goes through, also where `apply` was
#: given another name. There is no public way to notice it.
FunctionBase: Any = torch.autograd.Function.__mro__[1]

#: The base of all batch norm layers: torch has no public name for "any batch norm". There is no way without it.
BatchNorm = _batchnorm._BatchNorm

#: The line search of torch's L-BFGS, by cubic interpolation to a point that fulfils the strong Wolfe conditions.
#: There is no public one, and no self-scaled Broyden method without it.
strong_wolfe: Callable[..., tuple[float, torch.Tensor, float, int]]
strong_wolfe = importlib.import_module("torch.optim.lbfgs")._strong_wolfe

#: Sees every kernel that this thread runs, and may run another: that is how numbers are drawn from a generator of our
#: own. There is no way without it.
DispatchMode = _python_dispatch.TorchDispatchMode


def checkpointing() -> bool:
    """Whether what runs now will run again in the backward pass, as `torch.utils.checkpoint` has it.

    Where torch does not tell, a network that draws random numbers in there ends in torch's own error.
    """
    told = getattr(getattr(torch._C, "_autograd", None), "_top_saved_tensors_default_hooks", lambda _: None)
    hooks = told(True)
    return hooks is not None and getattr(hooks[0], "__module__", "") == "torch.utils.checkpoint"


#: What a transformer asks before it packs its tokens. Where it is missing, nothing is packed.
may_be_packed: Any = getattr(torch, "_nested_tensor_from_mask_left_aligned", None)

#: What torch checks before it normalises, so that a layer written out refuses the same shapes with the same words.
#: Where it is missing, such shapes are normalised to NaN.
verify_batch_size: Callable[[Sequence[int]], None] = getattr(F, "_verify_batch_size", lambda size: None)
verify_spatial_size: Callable[[Sequence[int]], None] = getattr(F, "_verify_spatial_size", lambda size: None)

#: Where errors of the compiler itself are defined and raised: there is no common class that would tell them from a
#: mistake in what is compiled. With other names a compiler that fails stops the computation with its own message.
_COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch.fx.experimental")


def forget_compiled_code() -> None:
    """Let a process that trained before compile as a fresh one does: torch specialises code for the shapes it has met.

    Without it a run's numbers could depend, in their last digits, on what ran before it.
    """
    torch._dynamo.reset()


#: The gcc that is sure to know every kind of vectors torch may choose, but for AMX.
_KNOWS_VECTORS = 11


def from_compiler(error: BaseException) -> bool:
    """Whether the compiler failed, rather than what it was to compile."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised_in = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    # Its assertions are of a built-in kind, and tell by the place where they are raised.
    return (isinstance(error, AssertionError) and raised_in.startswith(_COMPILER)) or any(
        kind.__module__.startswith(_COMPILER) for kind in type(error).__mro__
    )


def import_compiler() -> None:
    """Import now what optimizers import at their first step, for a process that forks: each child would do so anew.

    Without it every child takes some seconds longer.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("torch._dynamo")


def backward_compiled_at_once() -> AbstractContextManager[Any]:
    """Make the graph of the backward pass together with the forward one, so that the first call counts all of it.

    Without it the first backward pass compiles, and `compile_seconds` knows of the forward half only.
    """
    import torch._functorch.config as settings

    name = "force_non_lazy_backward_lowering"
    return settings.patch({name: True}) if hasattr(settings, name) else contextlib.nullcontext()


def graphs_traced() -> int:
    """How many graphs torch.compile has traced in this process, which tells that a call was compiled again.

    Where torch does not tell, graphs that it makes again by itself are not counted.
    """
    counters: Any = getattr(importlib.import_module("torch._dynamo.utils"), "counters", {})
    return counters["stats"]["unique_graphs"] if "stats" in counters else 0


@contextlib.contextmanager
def products_in_order() -> Iterator[None]:
    """Let the compiler tell x @ weight from weight @ x where x is an object of ours: it knows no reverse of @.

    Without it both reach us as weight.matmul(x), and their shapes have to tell.
    """
    builtins: Any = importlib.import_module("torch._dynamo.variables.builtin")
    reverse: dict[Any, Any] | None = getattr(builtins, "BUILTIN_TO_TENSOR_RFN_MAP", None)
    if reverse is None or operator.matmul in reverse:
        yield
        return
    reverse[operator.matmul] = torch.Tensor.__rmatmul__
    try:
        yield
    finally:
        del reverse[operator.matmul]


@contextlib.contextmanager
def hooks_checked() -> Iterator[None]:
    """Let graphs that are made notice hooks that a layer gets later on, which they leave out otherwise.

    Without it a hook must be there before the first call.
    """
    settings: Any = importlib.import_module("torch._dynamo.config")
    name = "skip_nnmodule_hook_guards"
    skipped = getattr(settings, name, False)
    if not skipped:
        yield
        return
    setattr(settings, name, False)
    try:
        yield
    finally:
        setattr(settings, name, skipped)


@contextlib.contextmanager
def without_trial_builds() -> Iterator[None]:
    """Let the compiler take it for granted that gcc knows the processor's vectors.

    Otherwise torch builds and loads a program for each kind of vectors before it compiles anything, which is a quarter
    of a first compilation. So they are left out for a gcc that is new enough, unless the user has decided; the tiles of
    AMX are younger, and are tried. Without it compiling takes longer.
    """
    import torch._inductor.config as settings

    kinds: Any = getattr(importlib.import_module("torch._inductor.cpu_vec_isa"), "VecISA", None)
    decided = getattr(settings.cpp, "vec_isa_ok", None) is not None
    if decided or not hasattr(kinds, "check_build") or not _knows_vectors():
        yield
        return
    tried = kinds.check_build
    kinds.check_build = lambda self, code: True
    try:
        yield
    finally:
        kinds.check_build = tried


@functools.lru_cache(maxsize=1)
def _knows_vectors() -> bool:
    unknown: Callable[[], bool] = lambda: True  # noqa: E731
    tiles: Callable[[], bool] = getattr(torch.cpu, "_is_amx_tile_supported", unknown)
    if tiles():
        return False
    try:
        from torch._inductor.cpp_builder import get_cpp_compiler

        told = subprocess.run([get_cpp_compiler(), "-dumpfullversion"], capture_output=True, text=True, timeout=10)
    except Exception:  # whatever is wrong with the compiler shows where it is needed
        return False
    version = told.stdout.partition(".")[0]  # clang does not know this question and says nothing
    return version.isdecimal() and int(version) >= _KNOWS_VECTORS


def as_one_program() -> dict[str, Any]:
    """Options for `torch.compile` that put all of a graph's loops into one C++ program, on a CPU.

    Otherwise each loop is a program of its own, and most of a first compilation is reading headers. Without it that is
    how it is.
    """
    import torch._inductor.config as settings

    return {"cpp_wrapper": True} if hasattr(settings, "cpp_wrapper") else {}


@contextlib.contextmanager
def all_headers_read_before() -> Iterator[None]:
    """Let the header that torch has compiled once, for all programs of a machine, be all that such a program reads.

    It leaves out the one of vectors, which is read again for each program: a third of the C++ compiler's time. Without
    it compiling takes longer.
    """
    building: Any = importlib.import_module("torch._inductor.codecache")
    name = "_get_cpp_wrapper_header"
    usual, vectors = getattr(building, name, None), getattr(building, "_get_cpp_prefix_header", None)
    if usual is None or vectors is None:
        yield
        return

    def both(device: str, *options: Any, **named: Any) -> str:
        more = vectors(device)
        # Torch writes it between the brackets of one `#include`.
        return usual(device, *options, **named) + (f">\n#include <{more}" if more else "")

    setattr(building, name, both)
    try:
        yield
    finally:
        setattr(building, name, usual)


def with_open_sizes(tensor: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    """The tensor, telling the compiler that its sizes along some axes may change.

    A view is marked, since the mark stays with a tensor. Without it every size is compiled anew.
    """
    mark = getattr(importlib.import_module("torch._dynamo"), "mark_dynamic", None)
    if not axes or mark is None:
        return tensor
    marked = tensor.view_as(tensor)
    mark(marked, list(axes))
    return marked


def product_by_onednn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product of two matrices of single precision by oneDNN, which torch calls for them in compiled inference only.

    Without it an exception is raised, and graphs keep the products that torch has.
    """
    return torch.ops.mkldnn._linear_pointwise.default(a, b.t(), None, "none", [], "")


def with_graph_pass(rewrite: Callable[[Graph], None], files: Sequence[str]) -> dict[str, Any]:
    """Options for `torch.compile` that rewrite graphs on their way to machine code, unless the user has a pass there.

    Args:
        rewrite: changes a graph in place, after differentiation.
        files: by the content of these files compiled graphs are found again in torch's cache on disk.

    Without it compiled graphs use torch's own functions and are right all the same; there are no options then.
    """
    import torch._inductor.config as settings

    try:
        from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
    except ImportError:
        return {}
    if getattr(settings, "post_grad_custom_post_pass", rewrite) is not None:
        return {}

    class Pass(CustomGraphPass):
        def __call__(self, graph: Graph) -> None:
            rewrite(graph)

        def uuid(self) -> Any:
            return get_hash_for_files(tuple(files))

    return {"post_grad_custom_post_pass": Pass()}
