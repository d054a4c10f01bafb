"""Measure the error of `dudx.isolate(..., approximate=True)` in networks that mix samples in several layers.

    python benchmarks/isolation_gap.py [--largest 4096] [--seeds 3] [--out docs/images/isolation-gap.png]

The error of u_x is relative to its root mean square, by Taylor propagation in double precision on untrained networks of
width 32. It is measured for `isolate(model, x, approximate=True)` and for the usual idiom `AD(coupled="ignore")`,
against `isolate(model, x, exact=True)` at a few samples of the batch. With --out the picture is drawn, and the numbers
are written next to it as CSV.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import dudx
from dudx.errors import percent

WIDTH, SAMPLES = 32, 16
#: Attention compares all pairs of a batch, so that its exact evaluation at one sample is of the second order in the
#: batch size: above 512 samples in a batch fewer of them are compared, at 4096 two per network.
PAIRS = 8192


class AttentionStack(nn.Module):
    """Residual self-attention over the batch as the sequence."""

    def __init__(self, layers: int):
        super().__init__()
        self.embed, self.head = nn.Linear(2, WIDTH), nn.Linear(WIDTH, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(layers))
        self.attentions = nn.ModuleList(nn.MultiheadAttention(WIDTH, 2) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        """Apply blocks of norm, attention and tanh."""
        h = self.embed(x)
        for norm, attention in zip(self.norms, self.attentions, strict=True):
            tokens = norm(h)
            h = torch.tanh(h + attention(tokens, tokens, tokens, need_weights=False)[0])
        return self.head(h)


def batch_norm_stack(layers: int) -> nn.Module:
    """Return a network of linear layers, each followed by batch norm and tanh."""
    widths = [2, *[WIDTH] * layers]
    blocks = [(nn.Linear(a, b), nn.BatchNorm1d(b), nn.Tanh()) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(*itertools.chain.from_iterable(blocks), nn.Linear(WIDTH, 1))


NETWORKS = {"batch norm": batch_norm_stack, "attention": AttentionStack}


@dataclass(frozen=True)
class Gap:
    """Relative errors of u_x with a batch size, a network and a number of mixing layers."""

    network: str
    layers: int
    batch: int
    isolated: float
    idiom: float


def gap(network: str, layers: int, batch: int, seeds: int) -> Gap:
    """Return root mean square errors over a few samples and some untrained networks."""
    squares = torch.zeros(3, dtype=torch.float64)
    for seed in range(seeds):
        torch.manual_seed(seed)
        model = NETWORKS[network](layers).double()
        x = torch.rand(batch, 2, dtype=torch.float64) * 2 - 1
        count = SAMPLES if network == "batch norm" else min(SAMPLES, PAIRS // batch)
        few = torch.linspace(0, batch - 1, min(batch, count)).round().long()
        exact, isolated = (
            dudx.evaluate(dudx.isolate(model, x, **{way: True}).at(few), x[few], dudx.D(0), dudx.Taylor())
            for way in ("exact", "approximate")
        )
        idiom = dudx.evaluate(model, x, dudx.D(0), dudx.AD(coupled="ignore"))[few]
        parts = [isolated - exact, idiom - exact, exact]
        squares += torch.stack([part.square().mean() for part in parts])
    errors = (squares[:2] / squares[2]).sqrt().tolist()
    return Gap(network, layers, batch, *errors)


def measured(largest: int, seeds: int) -> Iterator[Gap]:
    """Measure every network, depth and batch size."""
    for network, layers in itertools.product(NETWORKS, (1, 2, 4)):
        batch = 16
        while batch <= largest:
            yield gap(network, layers, batch, seeds)
            batch *= 2


def markdown(gaps: Sequence[Gap]) -> str:
    """Return a table with one row per batch size."""
    columns = sorted({(g.network, g.layers) for g in gaps}, key=lambda c: (list(NETWORKS).index(c[0]), c[1]))
    by_place = {(g.network, g.layers, g.batch): g for g in gaps}
    heads = ["B", *(f"{network} ×{layers}" for network, layers in columns)]
    lines = [heads, ["---:"] * len(heads)]
    for batch in sorted({g.batch for g in gaps}):
        cells = [by_place.get((*column, batch)) for column in columns]
        lines.append([str(batch), *("" if g is None else f"{g.isolated:.1e} ({percent(g.idiom)})" for g in cells)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def draw(gaps: Sequence[Gap], path: Path) -> None:
    """Draw the errors against the batch size, one panel per kind of network."""
    from dudx.lab import plots

    with plots.figure(path, len(NETWORKS), (9.6, 3.9)) as axes:
        for ax, network in zip(axes, NETWORKS, strict=True):
            for layers, colour, marker in (
                (1, plots.COLOURS[2], "o"),
                (2, plots.COLOURS[0], "s"),
                (4, plots.COLOURS[1], "^"),
            ):
                line = [g for g in gaps if (g.network, g.layers) == (network, layers)]
                batches = [g.batch for g in line]
                name = f"{layers} mixing layer{'s' * (layers > 1)}"
                ax.loglog(batches, [g.isolated for g in line], color=colour, marker=marker, markersize=4, label=name)
                ax.loglog(batches, [g.idiom for g in line], color=colour, linestyle=":")
            two = next(g for g in gaps if (g.network, g.layers) == (network, 2))
            ends = [g.batch for g in gaps if g.network == network]
            guide = [min(ends), max(ends)]
            ax.loglog(
                guide, [0.3 * two.isolated * guide[0] / b for b in guide], color="0.6", linestyle="--", label="1/B"
            )
            ax.plot([], [], color="0.3", linestyle=":", label="usual idiom")
            ax.set(title=network, xlabel="samples in the batch B", ylabel="relative error of $u_x$", ylim=(1e-17, 30))
            ax.set_xticks([tick for tick in (16, 64, 256, 1024, 4096) if tick <= max(ends)])
            ax.xaxis.set_major_formatter("{x:.0f}")
            ax.xaxis.minorticks_off()
            ax.legend(loc="center right")


def main() -> None:
    """Measure, print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=4096, help="the largest batch, at most 8192")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="a picture to draw; the numbers are written next to it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        gaps = list(measured(options.largest, options.seeds))
    print(markdown(gaps))
    if options.out is not None:
        draw(gaps, options.out)
        with options.out.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(asdict(gaps[0])))
            writer.writeheader()
            writer.writerows(asdict(g) for g in gaps)


if __name__ == "__main__":
    main()
