"""Mistakes that users make: how each comes about, the class of the exception, and what its message says."""

import torch
from helpers import mlp, points
from torch import nn

from dudx import (
    AD,
    EFD,
    FD,
    SFD,
    Along,
    CoupledModelError,
    D,
    Laplacian,
    PerSampleAD,
    Residual,
    coupled,
    evaluate,
    find_eps,
)
from dudx.errors import CalibrationError, InputError, ModelError, StepNotSetError, UnsupportedError

net = mlp()
x = points(6, 2)
n = torch.ones_like(x)
INPUTS = ("x", "t")


def with_row(row, value):
    bad = x.clone()
    bad[row, 1] = value
    return bad


def on(points, operators=None, engine=None, model=net):
    return lambda: evaluate(model, points, [D(0)] if operators is None else operators, engine or AD())


def model(function):
    return on(x, model=function)


def engine(value):
    return lambda: evaluate(net, x, [D(0)], value)


def operators(value):
    return lambda: evaluate(net, x, value, AD())


def residual(function, inputs=INPUTS, data=(), at=x, **given):
    return lambda: Residual(function, inputs, data=data)(net, at, AD(), **given)


def search(order=1, at=x, of=net, **keywords):
    return lambda: find_eps(of, at, order, **keywords)


def in_place(x):
    x *= 2
    return x[:, :1]


def raising(x):
    raise RuntimeError("the valve is stuck")


def with_positional_only(u, /):
    return u.x


def forgetful():
    seen = []

    def equation(u):
        seen.append(u)
        return u.x if len(seen) == 1 else u.x + torch.sin(u)

    return equation


broken = nn.Sequential(nn.Linear(2, 1), nn.Tanh()).double()
with torch.no_grad():
    broken[0].weight.fill_(torch.nan)

# Mistakes: the code, the class of the exception, and a pattern of its message.
TABLE = {
    # Points.
    "points as a list": (on([[0.0, 1.0]]), InputError, r"points must be a torch tensor of shape \(B, d\); got list"),
    "points as None": (on(None), InputError, r"points must be a torch tensor .*got NoneType"),
    "points in one dimension": (on(x[0]), InputError, r"shape \(B, d\), one row per point; got shape \(2,\)"),
    "points in three dimensions": (on(x[None]), InputError, r"one row per point; got shape \(1, 6, 2\)"),
    "integer points": (on(x.long()), InputError, r"floating-point to be differentiated; got torch.int64: use x.float"),
    "complex points": (on(x + 0j), InputError, r"floating-point to be differentiated; got torch.complex128"),
    "empty batch": (on(x[:0]), InputError, r"batch of points is empty \(shape \(0, 2\)\); give at least one"),
    "points without columns": (on(x[:, :0]), InputError, r"batch of points is empty \(shape \(6, 0\)\)"),
    "NaN among the points": (on(with_row(3, torch.nan)), InputError, r"points must be finite; row 3 holds a NaN"),
    "infinity among the points": (on(with_row(4, -torch.inf)), InputError, r"points must be finite; row 4 holds"),
    # Models.
    "model not callable": (model("net"), InputError, r"model must be callable, from \(B, d\) to \(B, m\); got str"),
    "model a class": (model(nn.Tanh), InputError, r"model is the class Tanh, not an instance; call it first"),
    "model returns a tuple": (model(lambda x: (x, x)), ModelError, r"returned a tuple of 2; .*wrap it"),
    "model returns None": (model(lambda x: None), ModelError, r"returned NoneType; it must return one tensor"),
    "model returns an array": (model(lambda x: x.detach().numpy()), ModelError, r"returned ndarray; it must return"),
    "model returns one dimension": (model(lambda x: x[:, 0]), ModelError, r"shape \(6,\) for 6 points.*unsqueeze\(1\)"),
    "model returns other rows": (model(lambda x: x[:2]), ModelError, r"shape \(2, 2\) for 6 points"),
    "model returns no column": (model(lambda x: x[:, :0]), ModelError, r"shape \(6, 0\) for 6 points"),
    "model returns integers": (model(lambda x: x.long()), ModelError, r"returned torch.int64; .*floating-point output"),
    "model works in place": (model(in_place), ModelError, r"changed its input in place; write x = x \* 2"),
    "model in single precision": (
        on(x, model=mlp().float()),
        InputError,
        r"model is torch.float32 and the points are torch.float64; convert one with .to",
    ),
    "model elsewhere": (
        on(x, model=mlp().to("meta")),
        InputError,
        r"model is on meta and the points on cpu; move one with .to",
    ),
    "points elsewhere": (on(x.to("meta")), InputError, r"model is on cpu and the points on meta"),
    "model takes other columns": (
        on(points(6, 3)),
        ModelError,
        r"model failed on a batch of shape \(6, 3\), torch.float64: .*cannot be multiplied",
    ),
    "model raises": (model(raising), ModelError, r"model failed on a batch .*: the valve is stuck"),
    "model couples samples": (
        model(lambda x: x * x.mean()),
        CoupledModelError,
        r"batch influence each other.*isolate\(model, x\).*PerSampleAD\(\)",
    ),
    "model that vmap cannot run": (
        on(x, engine=PerSampleAD(), model=lambda x: x * (1 if x.sum() > 0 else 2)),
        UnsupportedError,
        r"cannot run this model; use dudx.PerSampleAD\(method='loop'\)",
    ),
    "network beside the model not callable": (
        lambda: Residual(lambda u, k: k * u.x, INPUTS, networks={"k": 3}),
        InputError,
        r"network k must be callable; got int",
    ),
    "data that are a number": (
        residual(lambda u, g: u.x - g, data=("g",), g=2.0),
        InputError,
        r"data g must be a torch tensor; got float",
    ),
    "data that are an array": (
        residual(lambda u, g: u.x - g, data=("g",), g=x[:, :1].numpy()),
        InputError,
        r"data g must be a torch tensor; got ndarray",
    ),
    # Engines.
    "engine as a class": (engine(AD), InputError, r"engine must be an instance such as dudx.AD\(\).*; got AD"),
    "engine as a string": (engine("AD"), InputError, r"engine must be an instance .*; got 'AD'"),
    "engine None": (engine(None), InputError, r"engine must be an instance .*; got None"),
    "step zero": (lambda: FD(0), InputError, r"step must be positive and finite; got 0.0"),
    "step negative": (lambda: FD(-1e-2), InputError, r"step must be positive and finite; got -0.01"),
    "step NaN": (lambda: FD(float("nan")), InputError, r"step must be positive and finite; got nan"),
    "step infinite": (lambda: FD(float("inf")), InputError, r"step must be positive and finite; got inf"),
    "step a string": (lambda: FD("1e-2"), InputError, r"step must be a positive number; got '1e-2'"),
    "step a truth value": (lambda: FD(True), InputError, r"step must be a positive number; got True"),
    "step of an axis zero": (lambda: FD((0.1, 0.0)), InputError, r"step of each axis must be positive .*got 0.0"),
    "steps for no axis": (lambda: FD(()), InputError, r"at least one axis; got an empty sequence"),
    "steps for too many axes": (engine(FD((0.1,) * 3)), InputError, r"steps for 3 axes and the points have 2 columns"),
    "EFD with one number": (lambda: EFD(1e-2), InputError, r"EFD takes a step for each derivative order.*got 0.01"),
    "EFD with no step": (lambda: EFD({}), InputError, r"EFD takes a step for each derivative order.*got {}"),
    "EFD with order zero": (lambda: EFD({0: 0.1}), InputError, r"keys of EFD's steps are derivative orders.*got 0"),
    "EFD with order as text": (lambda: EFD({"1": 0.1}), InputError, r"keys of EFD's steps .*got '1'"),
    "EFD with a negative step": (lambda: EFD({1: -0.1}), InputError, r"step must be positive and finite; got -0.1"),
    "SFD with one number": (lambda: SFD(1e-2), InputError, r"SFD takes steps={1: a, 2: b} or .*\(a, b\); got 0.01"),
    "SFD with three ends": (lambda: SFD((1, 2, 3)), InputError, r"ends of a range \(a, b\); got \(1, 2, 3\)"),
    "SFD with steps by axis": (
        lambda: SFD({1: (0.1, 0.2)}),
        InputError,
        r"must be a positive number; got \(0.1, 0.2\)",
    ),
    "SFD with a seed": (lambda: SFD((0.1, 0.2), generator=3), InputError, r"must be a torch.Generator; got int"),
    "FD without a step": (engine(FD()), StepNotSetError, r"FD has no step yet: .*\.calibrated\(.*FD\(step=1e-2\)"),
    "EFD without steps": (engine(EFD()), StepNotSetError, r"EFD has no step yet: .*\.calibrated\(.*EFD\(steps={1"),
    "SFD without steps": (engine(SFD()), StepNotSetError, r"SFD has no step yet: .*\.calibrated\(.*SFD\(steps={1"),
    "EFD without this order": (
        on(x, [D(0), D(0, 0)], EFD({1: 0.1})),
        StepNotSetError,
        r"no step for derivatives of order 2 \(it has orders \[1\]\).*calibrated",
    ),
    "accuracy odd": (lambda: FD(0.1, accuracy=3), InputError, r"must be an even number, 2 or more; got 3"),
    "accuracy zero": (lambda: EFD({1: 0.1}, accuracy=0), InputError, r"must be an even number, 2 or more; got 0"),
    "accuracy a fraction": (lambda: SFD((0.1, 0.2), accuracy=2.0), InputError, r"must be an even number.*got 2.0"),
    "coupled misspelt": (lambda: AD(coupled="no"), InputError, r"coupled must be one of 'refuse', 'ignore'; got 'no'"),
    "coupled misspelt in FD": (lambda: FD(0.1, coupled="no"), InputError, r"coupled must be one of 'refuse'"),
    "method misspelt": (lambda: PerSampleAD("fast"), InputError, r"method must be one of 'vectorised', 'loop'"),
    "chunk zero": (lambda: PerSampleAD(chunk=0), InputError, r"chunk must be a whole number, 1 or more; got 0"),
    # Operators.
    "no operators": (operators([]), InputError, r"list of operators is empty; ask for at least one"),
    "operators by name": (operators("xx"), InputError, r"Operators must be a list such as \[D\(0\).*got 'xx'"),
    "operators as tuples": (operators([(0, 0)]), InputError, r"Operators must be a list .*got \[\(0, 0\)\]"),
    "operator not called": (operators([Laplacian]), InputError, r"Operators must be a list"),
    "operators None": (operators(None), InputError, r"Operators must be a list .*got None"),
    "axis out of range": (operators([D(2)]), InputError, r"Axis 2 is out of range: the points have 2 columns, 0 to 1"),
    "axis negative": (lambda: D(-1), InputError, r"D takes the numbers of input columns, 0 or more; got -1"),
    "axis a name": (lambda: D("x"), InputError, r"D takes the numbers of input columns, 0 or more; got 'x'"),
    "axis a fraction": (lambda: D(0.0), InputError, r"D takes the numbers of input columns.*got 0.0"),
    "Laplacian of a number": (lambda: Laplacian(2), InputError, r"Laplacian takes a list of axes .*got 2"),
    "Laplacian of nothing": (
        lambda: Laplacian([]),
        InputError,
        r"Laplacian takes one or more different axes; got \[\]",
    ),
    "Laplacian twice": (lambda: Laplacian([0, 0]), InputError, r"Laplacian takes one or more different axes"),
    "Along a list": (lambda: Along([1.0, 0.0]), InputError, r"floating-point tensor of shape \(B, d\).*got list"),
    "Along one vector": (lambda: Along(n[0]), InputError, r"a vector per point; got a tensor of shape \(2,\)"),
    "Along integers": (lambda: Along(n.long()), InputError, r"got a tensor of shape \(6, 2\) and torch.int64"),
    "Along order 0": (lambda: Along(n, 0), InputError, r"order of Along must be a whole number, 1 or more; got 0"),
    "Along half an order": (lambda: Along(n, 1.5), InputError, r"order of Along must be a whole number.*got 1.5"),
    "Along with other rows": (operators(Along(n[:3])), InputError, r"shape of the points, \(6, 2\); got \(3, 2\)"),
    "Along in single precision": (operators(Along(n.float())), InputError, r"Along is torch.float32 on cpu.*v.to\(x\)"),
    "Along elsewhere": (operators(Along(n.to("meta"))), InputError, r"torch.float64 on meta and .* on cpu"),
    "Along NaN": (operators(Along(with_row(2, torch.nan))), InputError, r"direction of Along must be finite; row 2"),
    "Along composed": (lambda: D(0) @ Along(n), InputError, r"Along does not compose with other operators"),
    # Residuals.
    "residual of no function": (residual(None), InputError, r"made of a function, .*got NoneType"),
    "residual of a builtin": (residual(torch.sin), InputError, r"parameters of this built-in function are unknown"),
    "inputs as one string": (residual(lambda u: u.x, "xt"), InputError, r"named by a tuple such as .*got 'xt'"),
    "inputs empty": (residual(lambda u: u.x, ()), InputError, r"named by a tuple such as .*got \(\)"),
    "inputs a number": (residual(lambda u: u.x, 2), InputError, r"named by a tuple such as .*got 2"),
    "inputs not names": (residual(lambda u: u.x, ("x", "2t")), InputError, r"named by a tuple such as .*'2t'"),
    "inputs twice": (residual(lambda u: u.x, ("x", "x")), InputError, r"Input names must differ from each other"),
    "inputs reserved": (residual(lambda u: u.x, ("x", "d")), InputError, r"differ .* from d, along, laplacian"),
    "wrong number of inputs": (
        residual(lambda u: u.x, ("x", "y", "t")),
        InputError,
        r"residual has 3 inputs \(x, y, t\) and the points have 2 columns",
    ),
    "residual of bad points": (residual(lambda u: u.x, at=x.long()), InputError, r"points must be floating-point"),
    "residual with *args": (residual(lambda *u: u[0].x), InputError, r"matched by name: write them out, without \*"),
    "residual with **kwargs": (residual(lambda u, **more: u.x), InputError, r"matched by name: write them out"),
    "residual positional only": (residual(with_positional_only), InputError, r"matched by name.*without \*, \*\* or /"),
    "residual of inputs alone": (residual(lambda x, t: x), InputError, r"at least one parameter that names an output"),
    "residual asks for nothing": (residual(lambda u, x: x), InputError, r"asks for nothing of the network"),
    "too many outputs": (
        residual(lambda u, v: u.x + v.t),
        InputError,
        r"names 2 output\(s\) \(u, v\) and the model returns 1; name them all",
    ),
    "unknown derivative": (residual(lambda u: u.y), InputError, r"no derivative or tensor method named 'y'.*x, t"),
    "unknown name in d": (residual(lambda u: u.d("x", "y")), InputError, r"no input named 'y'; the inputs are x, t"),
    "tensor in d": (residual(lambda u, x: u.d(x)), InputError, r"no input named by a Field; the inputs are x, t"),
    "unknown name in laplacian": (residual(lambda u: u.laplacian("z")), InputError, r"no input named 'z'"),
    "same name in laplacian": (residual(lambda u: u.laplacian("x", "x")), InputError, r"one or more different axes"),
    "residual summed": (
        residual(lambda u: u.x.sum()),
        InputError,
        r"one value a point, shape \(6, 1\); got shape \(\)",
    ),
    "residual broadcast": (
        residual(lambda u, x: u.x * x[:, 0]),
        InputError,
        r"one value a point, shape \(6, 1\); got shape \(6, 6\)",
    ),
    "residual returns None": (residual(lambda u: None), InputError, r"one value a point.*got NoneType"),
    "one of several is wrong": (residual(lambda u: (u.x, 1.0)), InputError, r"one value a point.*got float"),
    "branch on a comparison": (residual(lambda u: u.x if u > 0 else u.t), InputError, r"cannot branch .*torch.where"),
    "branch on equality": (residual(lambda u: u.x if u == 0 else u.t), InputError, r"cannot branch .*torch.where"),
    "branch on a field": (residual(lambda u: u.x or u.t), InputError, r"cannot branch .*torch.where"),
    "more the second time": (
        lambda: residual(forgetful())(),
        InputError,
        r"other derivatives when it was called again",
    ),
    "derivative of a product with data": (
        residual(lambda u, n: (u * n[:, :1]).x, data=("n",), n=n),
        InputError,
        r"one value a point in it cannot be differentiated",
    ),
    "derivative of a product along a vector": (
        residual(lambda u, n: (u * u).along(n), data=("n",), n=n),
        InputError,
        r"computed expression along a vector is not known",
    ),
    "direction from a field": (
        residual(lambda u, n: u.along(u * n), data=("n",), n=n),
        InputError,
        r"direction of along must be known beforehand: it cannot be computed from a field",
    ),
    "direction from a field's numbers": (
        residual(lambda u, n: u.along(u.detach() * n), data=("n",), n=n),
        InputError,
        r"direction of along must be known beforehand: it cannot be computed from a field",
    ),
    "derivative along a derivative": (
        residual(lambda u, n: u.x.along(n), data=("n",), n=n),
        InputError,
        r"Along does not compose",
    ),
    "data missing": (
        residual(lambda u, n: u.along(n), data=("n",)),
        InputError,
        r"expects the data \['n'\] with each call and got \[\]",
    ),
    "data not asked for": (residual(lambda u: u.x, n=n), InputError, r"expects the data \[\] .*got \['n'\]"),
    "data as one string": (residual(lambda u, n: u.x, data="n"), InputError, r"data are named by a tuple .*got 'n'"),
    "data named as an input": (residual(lambda u, t: u.x, data=("t",)), InputError, r"names of the data must differ"),
    "data named as an argument": (residual(lambda u: u.x, data=("engine",)), InputError, r"from model, x, engine"),
    # Calibration.
    "order too high": (search(5), InputError, r"derivative orders 1 to 4; got 5"),
    "order zero": (search(0), InputError, r"derivative orders 1 to 4; got 0"),
    "order a fraction": (search(1.0), InputError, r"derivative orders 1 to 4; got 1.0"),
    "order too high for an engine": (
        lambda: FD().calibrated(net, x, D(0, 0, 0, 0, 0)),
        InputError,
        r"derivative orders 1 to 4; got 5",
    ),
    "engine calibrated for nothing": (lambda: FD().calibrated(net, x, []), InputError, r"list of operators is empty"),
    "two candidates": (search(candidates=2), InputError, r"at least 3 candidates; got 2"),
    "half a candidate": (search(candidates=9.5), InputError, r"at least 3 candidates; got 9.5"),
    "range reversed": (
        search(smallest=1e-2, largest=1e-3),
        InputError,
        r"must be below the largest; got 0.01 and 0.001",
    ),
    "range of one step": (search(smallest=1e-2, largest=1e-2), InputError, r"smallest step must be below the largest"),
    "smallest step zero": (search(smallest=0), InputError, r"smallest step must be positive and finite; got 0.0"),
    "largest step text": (search(largest="1"), InputError, r"largest step must be a positive number; got '1'"),
    "search with odd accuracy": (search(accuracy=3), InputError, r"must be an even number, 2 or more; got 3"),
    "search along no axis": (search(axes=[]), InputError, r"axes to differentiate along must be a list.*got \[\]"),
    "search along a number": (search(axes=0), InputError, r"axes to differentiate along must be a list.*got 0"),
    "search along a missing axis": (search(axes=[2]), InputError, r"Axis 2 is out of range"),
    "too few rows": (search(max_rows=4), InputError, r"max_rows must be a whole number, 5 or more; got 4"),
    "rows as text": (search(max_rows="all"), InputError, r"max_rows must be a whole number.*got 'all'"),
    "reference misspelt": (search(reference="autograd"), InputError, r"reference must be one of 'exact', 'float64'"),
    "reference a class": (search(reference=AD), InputError, r"reference must be one of .*got <class"),
    "float64 of float64": (search(reference="float64"), InputError, r"double precision already; use reference='exact'"),
    "float64 of a function": (
        search(at=x.float(), of=torch.sin, reference="float64"),
        InputError,
        r"'float64' needs a copy of the model in torch.float64, which only an nn.Module",
    ),
    "exact of a half-precision function": (
        search(at=x.bfloat16(), of=torch.sin),
        InputError,
        r"'exact' needs a copy of the model in torch.float32.*use reference='differences'",
    ),
    "search without values": (search(at=x.to("meta"), of=torch.sin), InputError, r"meta device holds no values"),
    "search for NaN": (search(of=broken), CalibrationError, r"reference derivative is not finite.*NaN among"),
    # Coupling.
    "coupling without values": (lambda: coupled(torch.sin, x.to("meta")), InputError, r"meta device holds no values"),
    "coupling of a class": (lambda: coupled(nn.Tanh, x), InputError, r"model is the class Tanh, not an instance"),
    "coupling of bad points": (lambda: coupled(net, x[0]), InputError, r"points must have shape \(B, d\)"),
}
