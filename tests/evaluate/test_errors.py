"""Each mistake is named in one or two sentences of its own, by the class of exception that people expect."""

import re
from types import SimpleNamespace

import pytest
import torch
from helpers import OnceDifferentiable, every_engine, points
from mistakes import TABLE, in_place, raising, x
from torch import nn

from dudx import AD, FD, CoupledModelError, D, DudxError, Laplacian, PerSampleAD, evaluate, find_eps
from dudx.errors import CalibrationError, InputError, ModelError, StepNotSetError, UnsupportedError


@pytest.mark.parametrize(("attempt", "kind", "message"), TABLE.values(), ids=TABLE)
def test_a_mistake_is_named(attempt, kind, message):
    with pytest.raises(kind, match=message) as caught:
        attempt()
    assert type(caught.value) is kind


@pytest.mark.parametrize("attempt", [row[0] for row in TABLE.values()], ids=TABLE)
def test_messages_are_one_or_two_whole_sentences(attempt):
    with pytest.raises(DudxError) as caught:
        attempt()
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    sentences = re.split(r"(?<=[a-z)\]'\"]\.) (?=[A-Z])", text)
    assert len(sentences) <= 2
    assert len(text) < 400


#: Mistakes that share one message: the same mistake in two places or forms. All other messages differ.
SAME = {
    frozenset(names)
    for names in (
        ("points in one dimension", "coupling of bad points"),
        ("integer points", "residual of bad points"),
        ("model a class", "coupling of a class"),
        ("accuracy odd", "search with odd accuracy"),
        ("coupled misspelt", "coupled misspelt in FD"),
        ("no operators", "engine calibrated for nothing"),
        ("axis out of range", "search along a missing axis"),
        ("Laplacian twice", "same name in laplacian"),
        ("Along composed", "derivative along a derivative"),
        ("residual with *args", "residual with **kwargs", "residual positional only"),
        ("branch on a comparison", "branch on equality", "branch on a field"),
        ("direction from a field", "direction from a field's numbers"),
        ("order too high", "order too high for an engine"),
    )
}


def test_different_mistakes_have_different_messages():
    by_text: dict[str, set[str]] = {}
    for name, (attempt, kind, _) in TABLE.items():
        with pytest.raises(kind) as caught:
            attempt()
        by_text.setdefault(str(caught.value), set()).add(name)
    assert {frozenset(names) for names in by_text.values() if len(names) > 1} == SAME


@pytest.mark.parametrize("name", every_engine(1e-2, 2))
@pytest.mark.parametrize(
    "mistake",
    [
        SimpleNamespace(model=lambda x: (x, x), message="returned a tuple of 2"),
        SimpleNamespace(model=lambda x: x[:, 0], message=r"unsqueeze\(1\)"),
        SimpleNamespace(model=lambda x: x[:, :0], message="must return"),
        SimpleNamespace(model=in_place, message="changed its input in place"),
        SimpleNamespace(model=nn.Sequential(nn.ELU(inplace=True)), message="changed its input in place"),
        SimpleNamespace(model=raising, message="the valve is stuck"),
    ],
    ids=["tuple", "one dimension", "no column", "in place", "a layer in place", "raises"],
)
def test_every_engine_refuses_the_same_models_with_the_same_words(mistake, name):
    for operator in (D(), D(0), Laplacian()):
        with pytest.raises(ModelError, match=mistake.message):
            evaluate(mistake.model, x, operator, every_engine(1e-2, 2)[name])


def test_errors_are_also_the_builtin_ones_people_expect():
    assert issubclass(InputError, ValueError)
    assert issubclass(ModelError, RuntimeError)
    assert issubclass(CoupledModelError, ModelError)
    assert issubclass(StepNotSetError, RuntimeError)
    assert issubclass(UnsupportedError, NotImplementedError)
    for kind in (InputError, ModelError, StepNotSetError, UnsupportedError, CalibrationError):
        assert issubclass(kind, DudxError)


def test_the_cause_of_a_failing_model_is_kept():
    with pytest.raises(ModelError) as caught:
        evaluate(raising, x, D(0), AD())
    assert str(caught.value.__cause__) == "the valve is stuck"


def test_other_exceptions_of_a_model_pass_unchanged():
    def missing(x):
        raise KeyError("weights")

    with pytest.raises(KeyError, match="weights"):
        evaluate(missing, x, D(0), AD())


def test_out_of_memory_is_not_taken_for_a_mistake_of_the_model():
    def greedy(x):
        raise torch.cuda.OutOfMemoryError("no memory left")

    with pytest.raises(torch.cuda.OutOfMemoryError, match="no memory left"):
        evaluate(greedy, x, D(0), AD())


class Once(nn.Module):
    def forward(self, x):
        return OnceDifferentiable.apply(x)


@pytest.mark.parametrize("engine", [AD(), PerSampleAD(method="loop")], ids=repr)
def test_what_can_be_differentiated_once_is_refused_twice_with_the_remedy(engine):
    x, model = points(20, 2), OnceDifferentiable.apply
    torch.testing.assert_close(evaluate(model, x, D(0), engine)[:, 0].detach(), torch.cos(x[:, 0]))
    for attempt in (
        lambda: evaluate(model, x, D(0, 0), engine),
        lambda: FD().calibrated(model, x, [D(0, 0)]),
        lambda: find_eps(model, x, 2),
    ):
        with pytest.raises(UnsupportedError, match=r"once_differentiable.*FD\(\)\.calibrated\(.*'differences'\)"):
            attempt()
    inside = nn.Sequential(nn.Linear(2, 4), Once(), nn.Tanh(), nn.Linear(4, 1)).double()
    with pytest.raises(UnsupportedError, match="once_differentiable"):
        evaluate(inside, x, Laplacian(), engine)
    differences = FD().calibrated(model, x, [D(0, 0)], reference="differences")
    assert (evaluate(model, x, D(0, 0), differences)[:, 0] + torch.sin(x[:, 0])).abs().max() < 1e-4


def test_what_was_overwritten_is_refused_with_the_remedy():
    def model(x):
        u = torch.sin(x)
        v = u.square()
        u.mul_(2)
        return v

    with pytest.raises(UnsupportedError, match=r"inplace.*reference='differences'"):
        evaluate(model, points(6, 2), D(0), AD())
