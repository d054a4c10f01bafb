"""Code shared by the adapters, which needs neither DeepXDE nor PINA."""

import pytest
import torch

from dudx import AD, Residual, Taylor
from dudx.adapters.fallback import AdapterWarning, check_agreement, warn_unaccelerated, with_named_parameters
from dudx.adapters.labelled_points import LabelledNetwork, LabelledPoints, network_of_plain_points
from dudx.adapters.named_fields import NamedFields, columns_of
from dudx.adapters.output_columns import FieldColumns, fields_of, joined_fields
from dudx.errors import InputError

X = torch.linspace(0.1, 1, 20, dtype=torch.float64).reshape(10, 2)


def network(x):
    return torch.cat([x[:, :1] ** 2 * x[:, 1:], torch.sin(x[:, 1:])], dim=1)


def of_columns(function):
    """A residual of both outputs side by side."""
    return Residual(with_named_parameters(["u", "v"], lambda u, v: function(FieldColumns([u, v]))), inputs=("x", "y"))


@pytest.mark.parametrize("engine", [AD(), Taylor()])
def test_columns_of_columns_can_be_differentiated(engine):
    found = of_columns(lambda y: fields_of(y[:, 0:1])[0].x + fields_of(y[:, 1:])[0].yy)(network, X, engine)
    torch.testing.assert_close(found, 2 * X[:, :1] * X[:, 1:] - torch.sin(X[:, 1:]))


@pytest.mark.parametrize(
    "function",
    [
        lambda y: (y * 2).sum(1, keepdim=True),
        lambda y: torch.sum(y + y, dim=1, keepdim=True),
        lambda y: (y / 0.5)[:, 0:1] + (2 - (-y + 2))[:, 1:] + y[:, 1].unsqueeze(1),
        lambda y: 2 * y[:, 0:1] + torch.cat([y, y], dim=1)[:, 3:] + (1 / (1 / y))[:, 1:],
    ],
)
def test_in_any_other_use_columns_are_a_tensor(function):
    torch.testing.assert_close(of_columns(function)(network, X, AD()), 2 * network(X).sum(1, keepdim=True))


def test_columns_refuse_branches():
    with pytest.raises(InputError, match="cannot branch"):
        of_columns(lambda y: y[:, 0:1] if y else y[:, 1:2])(network, X, AD())


def test_one_field_stays_a_field():
    residual = Residual(with_named_parameters(["u"], lambda u: joined_fields([u])[:, 0:1].xx), inputs=("x", "y"))
    torch.testing.assert_close(residual(lambda x: x[:, :1] ** 3, X, Taylor()), 6 * X[:, :1])


class Hard(torch.nn.Module):
    def forward(self, x):
        hard = x.extract(["x"]) * x.extract(["y"]) * x["x"] + (x * 2)[:, :1] - 2 * x.extract("x")
        return hard + torch.sin(x.extract(["y", "x"]))[:, :1] - (1 - x.extract("x"))


@pytest.mark.usefixtures("only_traced")
@pytest.mark.parametrize(("engine", "compile"), [(AD(), False), (Taylor(), False), (Taylor(), True)])
def test_a_network_may_ask_for_columns_by_name(engine, compile):
    residual = Residual(lambda u: u.xx + u.yy, inputs=("x", "y"), compile=compile)
    found = residual(LabelledNetwork(Hard(), ["x", "y"]), X, engine)
    torch.testing.assert_close(found, 2 * X[:, 1:] - torch.sin(X[:, 1:]))


def test_only_networks_that_ask_for_names_get_them():
    plain = torch.nn.Linear(2, 1).double()
    assert network_of_plain_points(plain, ["x", "y"], X) is plain
    assert isinstance(network_of_plain_points(Hard(), ["x", "y"], X), LabelledNetwork)


def of_named(function, compile=False):
    """A residual of both outputs by name."""
    of_fields = with_named_parameters(["u", "v"], lambda u, v: columns_of(function(NamedFields([u, v], ["u", "v"]))))
    return Residual(of_fields, inputs=("x", "y"), compile=compile)


@pytest.mark.usefixtures("only_traced")
@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda y: 2 * y,
        lambda y: y + y.extract(["u", "v"]),
        lambda y: y * 3 - y.tensor,
        lambda y: torch.cat([y["u"] / 0.5, 2 * y.extract("v")], dim=-1),
        lambda y: 2 - (2 - y * 2) + 0 * y.extract("u") ** 2,
        lambda y: y + torch.stack([y[:, 0], y[:, 1]], dim=1),
        lambda y: torch.cat([torch.sqrt(4 * y.extract("u") ** 2), -(-y.extract("v") - y.extract("v"))], dim=1),
    ],
)
def test_named_fields_are_what_tensors_are(function, compile):
    found = of_named(function, compile)(network, X, AD() if not compile else Taylor())
    torch.testing.assert_close(torch.cat(found, dim=1), 2 * network(X))


def test_named_fields_stay_symbolic():
    """A sum of derivatives is one operator."""

    def laplace(y):
        (u,) = y.extract("u").columns
        return NamedFields([u.d("x", "x")], ["a"]) - 0.5 * NamedFields([u.d("y", "y")], ["b"])

    assert len(of_named(laplace).operators(X)) == 1
    (found,) = of_named(laplace)(network, X, Taylor())
    torch.testing.assert_close(found, 2 * X[:, 1:])


def test_named_fields_refuse_branches():
    with pytest.raises(InputError, match="branch"):
        of_named(lambda y: y if y.extract("u") else -y)(network, X, AD())


def test_an_unknown_column_is_an_error():
    with pytest.raises(ValueError, match="z"):
        LabelledPoints(X, ["x", "y"]).extract("z")


def test_disagreement_is_noticed():
    check_agreement([X], [X.clone()], "residuals")
    with pytest.raises(InputError, match="differ"):
        check_agreement([X + 1e-6], [X], "residuals")
    with pytest.raises(InputError, match="differ"):
        check_agreement([X * float("nan")], [X], "residuals")
    with pytest.raises(InputError, match="shape"):
        check_agreement([X[:, :1]], [X], "residuals")
    with pytest.raises(InputError, match="recorded there are 0"):
        check_agreement([], [X], "residuals")


def test_the_sentence_names_the_reason():
    with pytest.warns(AdapterWarning, match=r"^This runs as before, without dudx: there is a reason\.$"):
        warn_unaccelerated("This", InputError("there is a reason."))
