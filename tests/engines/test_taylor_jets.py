"""Jets are used as tensors are: compared, cast, joined with constants, as keys and in branches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from taylor_layers import OPERATORS, assert_agree, points
from torch import Tensor

from dudx import AD, D, Taylor, evaluate
from dudx.errors import UnsupportedError

COMPARED: dict[str, Callable[[Tensor], Tensor]] = {
    "equal to a number": lambda x: torch.where(x == 0.5, torch.sin(x), x * x),
    "equal to a number of numpy's": lambda x: torch.where(2 * x == np.int64(1), torch.sin(x), x * x),
    "equal to a jet": lambda x: torch.where(torch.sin(x) == torch.sin(x), torch.sin(x), x * x),
    "different from a tensor": lambda x: torch.where(x != torch.full((7, 2), 0.5), torch.sin(x), x * x),
    "tensor on the left": lambda x: torch.where(torch.full((7, 2), 0.5) == x, torch.sin(x), x * x),
    "remainder of a number": lambda x: torch.sin(x % 0.7),
    "remainder of a jet": lambda x: torch.sin(x) % (2 + torch.cos(x)),
    "remainder of a tensor": lambda x: torch.remainder(torch.sin(x), torch.tensor([0.3, 0.4], dtype=x.dtype)),
    "remainder of a number by a jet": lambda x: 5.0 % (2 + x),
    "whole part": lambda x: x * (3 * x // 1),
    "whole part of a number by a jet": lambda x: x * (5.0 // (2 + x)),
}
#: References written out for functions whose derivative torch does not know.
WRITTEN_OUT: dict[str, Callable[[Tensor], Tensor]] = {
    "remainder of a number by a jet": lambda x: 5.0 - (2 + x) * torch.floor(5.0 / (2 + x.detach())),
    "whole part": lambda x: x * torch.floor(3 * x.detach()),
    "whole part of a number by a jet": lambda x: x * torch.floor(5.0 / (2 + x.detach())),
}


@pytest.mark.parametrize("name", COMPARED)
def test_comparisons_and_remainders(name: str) -> None:
    x = points()
    x[0, 0] = 0.5
    for operators in ([D(0)], [D(), D(0), D(1, 1), D(0, 1), D(0, 0, 0)]):
        reference = evaluate(WRITTEN_OUT.get(name, COMPARED[name]), x, operators, AD())
        for ours, exact in zip(evaluate(COMPARED[name], x, operators, Taylor()), reference, strict=True):
            assert torch.allclose(ours, exact, atol=1e-12)


def test_jets_remain_keys_and_differ_from_what_is_no_number() -> None:
    def model(x: Tensor) -> Tensor:
        assert (x == None) is False  # noqa: E711
        assert (x != "x") is True
        return {x: torch.sin(x)}[x]

    assert_agree(model, points(), [D(0)])


CASTS: dict[str, Callable[[Tensor], Tensor]] = {
    "to whole numbers": lambda x: x * (3 * x).to(torch.long),
    "to truth values": lambda x: x * (x > 0).to(torch.bool) + x.to(torch.bool),
    "to the type of an index": lambda x: torch.sin(x) + (3 * x).type_as(torch.arange(2)),
    "and back": lambda x: x.to(torch.int32).to(x.dtype) * torch.sin(x),
    "a constant to the type of a jet": lambda x: x + torch.ones(7, 2).type_as(x),
    "a constant to a jet": lambda x: x * torch.full((7, 2), 2.0).to(x),
    "a constant to the shape of a jet": lambda x: x + torch.full((1, 1), 2.0, dtype=x.dtype).expand_as(x),
    "a constant viewed as a jet": lambda x: x + torch.full((14,), 2.0, dtype=x.dtype).view_as(x),
    "to single precision and back": lambda x: torch.sin(x.to(torch.float32).to(x)),
    "a jet to the shape of another": lambda x: x[:, :1].expand_as(x) * x + x.flatten().reshape_as(torch.sin(x)),
}


@pytest.mark.parametrize("name", CASTS)
def test_only_what_stays_a_real_number_keeps_its_derivatives(name: str) -> None:
    x = points() * 2
    for operators in ([D(0)], [D(), D(0), D(1, 1)]):
        for ours, exact in zip(*(evaluate(CASTS[name], x, operators, e) for e in (Taylor(), AD())), strict=True):
            assert torch.allclose(ours, exact, rtol=1e-5 if "single" in name else 1e-12)


JOINED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cat of a tuple": lambda x, c: torch.cat((x, c), dim=1),
    "cat, the constant first": lambda x, c: torch.cat((c, x), 1),
    "cat by keyword": lambda x, c: torch.cat(tensors=[x, c], dim=1),
    "cat of a tuple by keyword": lambda x, c: torch.cat(tensors=(x, c), dim=1),
    "cat of a list": lambda x, c: torch.cat([x, c], dim=1),
    "stack of a tuple": lambda x, c: torch.stack((x, c), dim=1).flatten(1),
    "hstack of a tuple": lambda x, c: torch.hstack((x, c)),
    "vstack of a tuple": lambda x, c: torch.vstack((x.T, c.T)).T,
    "pad": lambda x, c: F.pad(x, (1, 2), value=3.0),
    "pad with zeros": lambda x, c: F.pad(x, (1, 2)),
    "circular pad": lambda x, c: F.pad(x.unsqueeze(1), (1, 1), mode="circular").flatten(1),
    "concat of a tuple": lambda x, c: torch.concat((x, c, c), dim=-1),
}


@pytest.mark.parametrize("joined", JOINED.values(), ids=JOINED)
@pytest.mark.parametrize("operators", [[D()], [D(0)], OPERATORS], ids=["value", "first order", "all"])
def test_a_constant_beside_jets_has_no_derivative(joined, operators) -> None:
    c = torch.full((7, 2), 3.0, dtype=torch.float64)
    assert_agree(lambda x: joined(x, c), points(), operators)
    assert_agree(lambda x: torch.sin(joined(torch.tanh(x), c)), points(), operators)


def test_a_constant_beside_jets_decides_the_precision_as_torch_does() -> None:
    wide = torch.ones(7, 1, dtype=torch.float64) / 3
    x = points().float()
    for joined in (lambda x: torch.cat([x, wide], 1), lambda x: torch.where(x > 0, x, wide)):
        ours, exact = (evaluate(joined, x, [D(), D(0)], engine)[0] for engine in (Taylor(), AD()))
        assert ours.dtype == exact.dtype == torch.float64
        assert torch.equal(ours, exact)


def test_attributes_of_a_jet_are_those_of_its_value() -> None:
    def model(x: Tensor) -> Tensor:
        assert x.is_cuda is False
        assert x.is_meta is False
        assert x.itemsize == 8
        return torch.sin(x) * (2 if x.is_sparse else 1) + x.data

    # Values taken out by .data are refused, unless checks are left out.
    with pytest.raises(UnsupportedError, match=r"\.data"):
        evaluate(model, points(), D(0), Taylor())
    taylor, exact = (evaluate(model, points(), [D(0), D(0, 0)], engine(coupled="ignore")) for engine in (Taylor, AD))
    for ours, theirs in zip(taylor, exact, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert_agree(lambda x: torch.sin(x.mH.mT), points(), [D(0), D(0, 0)])


def test_a_network_may_branch_on_its_values() -> None:
    """The branch is constant between jumps."""
    model = lambda x: torch.sin(x) if x[:1, :1] else -x  # noqa: E731
    for ours, exact in zip(
        *(evaluate(model, points(), [D(0), D(0, 0)], e) for e in (Taylor(coupled="ignore"), AD(coupled="ignore"))),
        strict=True,
    ):
        assert torch.allclose(ours, exact)
