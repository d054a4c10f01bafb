"""Parts of torch below its public surface: compilation, kernels, written-out layers, memory.

Every private part of torch that dudx uses is listed here, with what happens in a version of torch that lacks it. A test
compares the list with the code. pyproject.toml bounds torch's version from above; check this list before raising it.

active_modes.py
    torch._C._len_torch_function_stack: operators on jets are slower.
    torch._C._are_functorch_transforms_active: per-sample gradients are computed row by row.
    torch._C._functorch.get_interpreter_stack, torch._C._functorch.TransformType: any transform counts as vmap.
    torch._C._DisableFuncTorch: an engine whose first call is inside a transform fails later.
    torch._C._autograd._top_saved_tensors_default_hooks: checkpoints with random numbers raise torch's own error.

forward_mode.py
    torch._C._enter_dual_level, torch._C._exit_dual_level: forward mode fails after a compilation that failed.

containers.py
    _fields, of Python's named tuples rather than of torch.

torch_classes.py
    torch._ops.OpOverload: exported networks are differentiated by torch, more slowly.
    torch._ops.HigherOrderOperator: networks with torch.cond fail with torch's own error.
    torch.nn.modules.batchnorm._BatchNorm: required.
    torch.utils._python_dispatch.TorchDispatchMode: required.
    The base class of torch.autograd.Function: required.
    torch.optim.lbfgs._strong_wolfe: required.

attention_layers.py
    torch._nested_tensor_from_mask_left_aligned: nothing is packed.

norm_layers.py
    torch.nn.functional._verify_batch_size, torch.nn.functional._verify_spatial_size: too few values give NaN.

fused_kernels.py
    Attributes _saved_training and _saved_train of batch norm's graph nodes: fixed statistics are not recognised.
    torch._higher_order_ops, the module of torch.cond: its second derivative is taken for zero, and its errors are
    torch's own.

compiler.py
    torch._dynamo.reset: required for sweeps.
    torch._dynamo.utils.counters: recompilations are not counted.
    torch._dynamo.variables.builtin.BUILTIN_TO_TENSOR_RFN_MAP: weight @ x with square matrices is refused.
    torch._dynamo.config.skip_nnmodule_hook_guards: hooks that are added after compilation are missed.
    torch._functorch.config.force_non_lazy_backward_lowering: compile_seconds counts only the forward graph.
    Exceptions of torch._dynamo, torch._inductor, torch._functorch: a compiler that fails stops the computation.
    torch._inductor.config.cpp_wrapper: the first compilation takes longer.

open_sizes.py
    torch._dynamo.mark_dynamic: one graph per batch size.

onednn_products.py
    torch.ops.mkldnn._linear_pointwise: torch's own matrix products.

graph_rewrites.py
    torch._inductor.custom_graph_pass, torch._inductor.config.post_grad_custom_post_pass: no graph rewrites.
"""
