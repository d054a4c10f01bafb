"""Rows of a probe: their choice, the perturbations of some of them, and tolerances for the others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from dudx.network.model_checks import Model
from dudx.network.sandbox import output_of

#: The golden ratio: multiples modulo 1 never repeat, so that no symmetry of a network can hide a change.
GOLDEN_RATIO = (math.sqrt(5) - 1) / 2
#: The points among which nearest neighbours are looked for, the directions they are sorted along, and how many places
#: apart in that order two neighbours may be.
_MAX_POINTS, _LINES, _NEIGHBOURS = 2**17, 3, 8


def probe_batch(model: Model, x: Tensor, least: int, most: int) -> tuple[Tensor, Tensor]:
    """Return the rows of a probe and their outputs; all rows of x if the model accepts no other number."""
    rows = _probe_rows(x, least, most)
    try:
        return rows, output_of(model, rows)
    except Exception:
        if len(rows) == len(x):
            raise
    rows = in_general_position(x.detach())
    return rows, output_of(model, rows)


def perturbations(rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the rows with some of them moved, and a mask (B, 1) of those.

    For every pair of rows, one moves while the other stays. Each row has a code, a set of letters of equal size, so
    that no code contains another; the k-th perturbation moves the rows whose code has the k-th letter: 6 perturbations
    for 16 rows. Moves are large and alternate in sign, so that a threshold on a mean is crossed, and are no round
    numbers, so that periodic functions change. In the last perturbation every second row takes its neighbour's place,
    which shows influence of short range.
    """
    count, letters = len(rows), 1
    while math.comb(letters, letters // 2) < count:
        letters += 1
    codes = list(itertools.islice(itertools.combinations(range(letters), letters // 2), count))
    other = rows.roll(1, dims=1) if rows.shape[1] > 1 else -rows
    cloud = 1 + rows.abs().amax(dim=0)
    for letter in range(letters if count > 1 else 0):
        block = torch.tensor([[letter in code] for code in codes], device=rows.device)
        far = (-1) ** letter * (1 + (letter + 1) * GOLDEN_RATIO % 1)
        yield torch.where(block, other + far * cloud, rows), block
    block = torch.arange(count, device=rows.device).unsqueeze(1) % 2 == 0
    yield torch.where(block, rows.roll(-1, dims=0), rows), block


def difference(a: Tensor, b: Tensor) -> Tensor:
    """Absolute difference: zero between equal infinities and between two NaN; NaN if one value only is NaN."""
    return (a - b).abs().masked_fill((a == b) | (a.isnan() & b.isnan()), 0)


def rounding_tolerance(still: Tensor) -> Tensor:
    """Largest change by rounding in each column of the output (m,); columns may have very different units."""
    eps = torch.finfo(still.dtype).eps
    # In half precision 64 roundings would amount to a large share of the value.
    return (64 if eps < 1e-4 else 8) * eps * still.masked_fill(~still.isfinite(), 0).abs().amax(0)


def representative_points(x: Tensor, count: int) -> Tensor:
    """Return indices of some points: half spread over the batch, half pairs of nearest neighbours.

    Influence with a cut-off radius, as in particle methods and graphs, shows between nearest neighbours of the whole
    batch, and rarely between points chosen without regard to distance.
    """
    if count >= len(x):
        return torch.arange(len(x), device=x.device)
    pairs = _nearest_pairs(x, count // 4)
    spread = torch.linspace(0, len(x) - 1, count, device=x.device).round().long()
    others = spread[~torch.isin(spread, pairs)]
    kept = torch.linspace(0, len(others) - 1, count - len(pairs), device=x.device).round().long()
    return torch.cat([pairs, others[kept]])


def _nearest_pairs(x: Tensor, count: int) -> Tensor:
    """Return indices (2k,), k <= count, of disjoint pairs of distinct points that are close to each other.

    Candidates are neighbours in the order of projections on a few lines.
    """
    points = x[:_MAX_POINTS].double()
    width = (points.amax(0) - points.amin(0)).clamp(min=torch.finfo(torch.float64).tiny)
    lines = (
        torch.arange(1, _LINES + 1, device=x.device).unsqueeze(1)
        * torch.arange(1, x.shape[1] + 1, device=x.device).sqrt().double()
    )
    found: list[tuple[float, int, int]] = []
    for line in torch.cos(lines):
        order = (points / width @ line).argsort()
        for ahead in range(1, _NEIGHBOURS + 1):
            distance = (points[order[ahead:]] - points[order[:-ahead]]).norm(dim=1)
            distance = distance.masked_fill((distance == 0) | ~distance.isfinite(), math.inf)
            near = distance.topk(min(4 * count, len(distance)), largest=False).indices
            found += zip(distance[near].tolist(), order[near].tolist(), order[near + ahead].tolist(), strict=True)
    chosen: list[int] = []
    for distance, a, b in sorted(found):
        if distance < math.inf and a not in chosen and b not in chosen and len(chosen) < 2 * count:
            chosen += [a, b]
    return torch.tensor(chosen, dtype=torch.long, device=x.device)


def _probe_rows(x: Tensor, least: int, most: int) -> Tensor:
    """Choose rows of the batch; if there are fewer than `least`, shifted copies make up the number."""
    x = x.detach()
    if len(x) >= least:
        rows = x[representative_points(x, most)]
    else:
        number = torch.arange(least, device=x.device)
        rows = x[number % len(x)]
        rows = rows + (number // len(x)).unsqueeze(1).to(x.dtype) / least * (1 + rows.abs())
    return in_general_position(rows)


def in_general_position(rows: Tensor) -> Tensor:
    """Move rows away from special positions: a factor that is zero on the boundary hides what it multiplies.

    All rows are shifted by the same amount. Rows with equal values in a column are spread along it, in pairs if they
    differ in other columns, so that neighbours stay close.
    """
    cloud = 1 + rows.abs().amax(dim=0)
    number = torch.arange(len(rows), dtype=rows.dtype, device=rows.device).unsqueeze(1)
    constant = (rows == rows[:1]).all(dim=0)
    number = number if bool(constant.all()) else number - number % 2
    return rows + cloud * (GOLDEN_RATIO / 8 + torch.where(constant, number / len(rows), 0))
