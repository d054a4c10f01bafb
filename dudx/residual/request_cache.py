"""The requests that a function has made so far, so that it is not recorded at each call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from torch import Tensor

from dudx.errors import InputError
from dudx.network.chunking import CHUNKED_ROWS
from dudx.residual.field_function import FieldFunction
from dudx.residual.field_values import ChangedRequestError
from dudx.residual.recorded_request import RecordedRequest


class RequestCache:
    """Requests by the types of the points and of the data."""

    def __init__(self, function: FieldFunction):
        self._function = function
        self._requests: dict[Hashable, RecordedRequest] = {}
        #: Requests recorded at a single point, where some mistakes cannot be seen: not used for several points.
        self._of_one_point: dict[Hashable, RecordedRequest] = {}
        #: The types of calls whose values were found to belong to a point each.
        self._apart: set[Hashable] = set()
        #: False once the function has asked for other operators than before; it is then recorded at each call.
        self._steady = True

    def request(self, x: Tensor, data: Mapping[str, Tensor]) -> RecordedRequest:
        """The request of the function for a call: a known one if there is one."""
        return self._known(x, data) or self._recorded(x, data)

    def computed(self, x: Tensor, data: Mapping[str, Tensor], compute: Callable[[RecordedRequest], Any]) -> Any:
        """Call `compute` with the request of a call; record it again if the known one no longer holds."""
        if CHUNKED_ROWS.get() and len(x) > 1 and (types := _types(x, data)) not in self._apart:
            self._function.refuse_if_mixed(x, data)
            self._apart.add(types)
        known = self._known(x, data)
        if known is not None:
            try:
                return compute(known)
            except ChangedRequestError:
                # Something that the function reads has changed since it was recorded, a coefficient for example.
                self._steady = False
        try:
            return compute(self._recorded(x, data))
        except ChangedRequestError:
            raise InputError(
                "The residual asked for other derivatives when it was called again, so it is not known which to "
                "compute: it must not branch on values, count its calls or draw random numbers; use torch.where "
                "instead of if, and the engine dudx.STDE() for operators of which a few terms are drawn."
            ) from None

    def _known(self, x: Tensor, data: Mapping[str, Tensor]) -> RecordedRequest | None:
        if not self._steady:
            return None
        types = _types(x, data)
        known = self._requests.get(types)
        if known is None and len(x) == 1:
            known = self._of_one_point.get(types)
        return known.with_data(data, x) if known is not None and data else known

    def _recorded(self, x: Tensor, data: Mapping[str, Tensor]) -> RecordedRequest:
        request = self._function.recorded(x, data)
        if request.repeatable:
            requests = self._of_one_point if len(x) == 1 else self._requests
            requests[_types(x, data)] = request.without_vectors
        return request


def _types(x: Tensor, data: Mapping[str, Tensor]) -> Hashable:
    if not data:
        return x.dtype
    return (x.dtype, *((name, tensor.dtype, tensor.shape[1:]) for name, tensor in data.items()))
