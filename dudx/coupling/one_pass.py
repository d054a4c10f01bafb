"""All queries in one pass, after the context's: cheap, and exact where samples mix in one layer."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

from dudx.coupling.isolated import Isolated
from dudx.coupling.passes import ContextPass, QueryPass
from dudx.coupling.query_rows import QueryRows
from dudx.errors import InputError
from dudx.network.model_checks import Model
from dudx.network.sandbox import untracked_statistics
from dudx.network.with_data import Given


class OnePass(Isolated):
    """The context passes by itself, then all queries in one batch, in which functions that mix rows follow rules.

    A rule finds what its function saw of the context. So nothing that belongs to the context depends on a query, and
    derivatives along queries cost what they do in a network of their size.

    Args:
        model, context, update_statistics, places: as in `Isolated`.
        replace: whether a query takes the place of its sample in the context, or the context stays as it is.
    """

    def __init__(
        self, model: Model, context: Tensor, update_statistics: bool, places: Tensor | None = None, replace: bool = True
    ):
        super().__init__(model, context, update_statistics, places)
        self.replace = replace
        self.way = "each alone, in one pass" if replace else "nothing moves but the query"

    def __call__(self, x: Any) -> Any:
        return self.passed(x)[0]

    @property
    def one_function(self) -> bool:
        return not self.replace and not isinstance(self.model, Given)

    def passed(self, x: Any) -> tuple[Any, ContextPass]:
        """The output at the query rows, blocks of which, as stencils have them, pass together; and the context's."""
        size, count, places = len(self.context), x.shape[0], self.places
        if self.replace:
            self.whole(count)
        elif count % self.samples:  # nobody's place is taken, so any number will do
            if isinstance(self.model, Given):
                raise InputError(
                    f"A frozen network that was given data of {self.samples} points takes these points alone; "
                    f"got {count} rows, whose data are not known."
                )
            number = torch.arange(count, device=self.context.device) % self.samples
            places = number if places is None else places[number]
        with contextlib.ExitStack() as stack:
            before = ContextPass(size, self.update_statistics)
            kept = contextlib.nullcontext() if self.update_statistics else untracked_statistics(self.model)
            with kept, before:
                self.model(self.context.clone())
            before.finish()
            stack.enter_context(untracked_statistics(self.model))
            rows = QueryRows(size, count, places, self.replace)
            if count == size and before.ambiguous():
                # With one row more, which nobody looks at, an axis that counts rows is no longer as long as before.
                owners = rows.owners(self.context.device)
                rows = QueryRows(size, count + 1, torch.cat([owners, owners[:1]]), self.replace)
                x = torch.cat([x, x[:1]])
            network = self.model.at(rows.owners(x.device)) if isinstance(self.model, Given) else self.model
            following = stack.enter_context(QueryPass(rows, before.calls))
            u = network(x)
            following.finish()
            return (u if rows.count == count else u[:count]), before

    def _options(self) -> tuple[bool]:
        return (self.replace,)
