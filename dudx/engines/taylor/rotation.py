"""Other axes for operators of second order: along its eigenvectors an operator has no mixed derivatives.

Σ a_ij ∂_i ∂_j takes as many streams along any axes, but d (d + 1) / 2 products of them along those of the inputs, and d
squares along the eigenvectors of a.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dudx.engines.taylor.symbols import Monomial, Symbol

#: Eigenvalues below this part of the largest are rounding; above the second they may be made ±1.
_NOTHING, _WELL_CONDITIONED = 1e-14, 1e-6
#: How many operators beside may have first derivatives, each of which is a sum over all eigenvectors then.
_FEW = 3

#: Each new variable as a vector along the axes.
Vectors = np.ndarray


def rotated(symbols: Sequence[Symbol], dimensions: int) -> tuple[list[dict[Monomial, float]], Vectors] | None:
    """The symbols in variables along the eigenvectors of the one quadratic form in them, if that is worth it."""
    monomials = [monomial for symbol in symbols for monomial in symbol]
    if any(len(monomial) > 2 or max(monomial, default=0) >= dimensions for monomial in monomials):
        return None
    mixed = sum(len(monomial) == 2 and monomial[0] != monomial[1] for monomial in set(monomials))
    beside = sum(any(len(monomial) == 1 for monomial in symbol) for symbol in symbols)
    if mixed <= dimensions or beside > _FEW:  # before any matrix, of which there is one for each operator
        return None
    forms = [form for form in (_form(symbol, dimensions) for symbol in symbols) if form.any()]
    if not forms or not all(_parallel(form, forms[0]) for form in forms):
        return None
    values, vectors = np.linalg.eigh(forms[0])
    size = np.abs(values)
    kept = size > _NOTHING * size.max()
    scale = np.ones(dimensions)
    if size[kept].min() > _WELL_CONDITIONED * size.max():
        scale[kept] = np.sqrt(size[kept])
    axes = vectors * scale  # in columns
    return [_substituted(symbol, forms[0], vectors, scale, values, kept) for symbol in symbols], axes


def _form(symbol: Symbol, dimensions: int) -> np.ndarray:
    """The symmetric matrix of the terms of second order."""
    form = np.zeros((dimensions, dimensions))
    for monomial, c in symbol.items():
        if len(monomial) == 2:
            i, j = monomial
            form[i, j] += c / 2
            form[j, i] += c / 2
    return form


def _parallel(a: np.ndarray, b: np.ndarray) -> bool:
    factor = (a * b).sum() / (b * b).sum()
    return bool(np.abs(a - factor * b).max() <= _NOTHING * np.abs(a).max())


def _substituted(
    symbol: Symbol, form: np.ndarray, vectors: np.ndarray, scale: np.ndarray, values: np.ndarray, kept: np.ndarray
) -> dict[Monomial, float]:
    found: dict[Monomial, float] = {}
    own = _form(symbol, len(form))
    factor = (own * form).sum() / (form * form).sum()
    if factor:
        for k in np.flatnonzero(kept):
            found[(int(k), int(k))] = float(factor * values[k] / scale[k] ** 2)
    slope = np.zeros(len(form))
    for monomial, c in symbol.items():
        if len(monomial) == 1:
            slope[monomial[0]] += c
        elif not monomial:
            found[()] = c
    along = vectors.T @ slope / scale
    for k in np.flatnonzero(np.abs(along) > _NOTHING * np.abs(along).max(initial=0)):
        found[(int(k),)] = float(along[k])
    return found
