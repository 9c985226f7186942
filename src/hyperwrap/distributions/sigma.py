"""The two shapes of ``Σ = LLᵀ``: diagonal, in O(n), and full, in O(n²).

Both colour white noise (``v = Lε``), whiten (``ε = L⁻¹v``) and know ``log det L`` and the
eigenvalues of ``Σ``. They hold the parameter as it was given, before broadcasting, and a
full factor in float64: at condition number 100, float32 would cost two digits.
"""

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions.multivariate_normal import _precision_to_scale_tril

from hyperwrap.curvature import Curvature, times
from hyperwrap.precision import no_autocast, wide

__all__ = ["Diagonal", "Form", "Full", "Sigma", "sigma_from"]


class Form(NamedTuple):
    """A symmetric matrix; of one that is diagonal, or of which no more is asked, the diagonal."""

    values: Tensor
    """``(..., n)`` or ``(..., n, n)``."""
    is_diagonal: bool

    def rows(self, x: Tensor) -> Tensor:
        """The matrix times each row of ``x``, ``(..., m, n)``."""
        return self.values.unsqueeze(-2) * x if self.is_diagonal else x @ self.values

    def diagonal(self) -> Tensor:
        return self.values if self.is_diagonal else self.values.diagonal(dim1=-2, dim2=-1)

    def inner(self, other: "Form") -> Tensor:
        """``tr(SP)``."""
        if self.is_diagonal or other.is_diagonal:
            return (self.diagonal() * other.diagonal()).sum(-1)
        return (self.values * other.values).sum((-2, -1))

    def unsqueeze(self) -> "Form":
        """One more batch dimension, the last."""
        return Form(self.values.unsqueeze(-2 if self.is_diagonal else -3), self.is_diagonal)


class Diagonal:
    def __init__(self, scale: Tensor) -> None:
        self.scale = scale

    def times(self, factor: Curvature) -> "Diagonal":
        """``factor²·Σ``, in float64; a tensor has a last dimension of 1."""
        return Diagonal(times(wide(self.scale), factor))

    def covariance(self) -> Form:
        return Form(self.scale.square(), is_diagonal=True)

    def precision(self) -> Form:
        return Form(self.scale.square().reciprocal(), is_diagonal=True)

    def colour(self, noise: Tensor) -> Tensor:
        return noise * self.scale

    def whiten(self, v: Tensor) -> Tensor:
        return v / self.scale

    def log_det_root(self, dtype: torch.dtype) -> Tensor:
        return self.scale.to(dtype).log().sum(-1)

    def eigenvalues(self) -> Tensor:
        return wide(self.scale).square()

    def trace(self) -> Tensor:
        return self.scale.square().sum(-1)

    def tril(self) -> Tensor:
        return torch.diag_embed(wide(self.scale))


class Full:
    def __init__(self, tril: Tensor) -> None:
        self._tril = tril

    def times(self, factor: Curvature) -> "Full":
        matrix = factor.unsqueeze(-1) if isinstance(factor, Tensor) else factor
        return Full(times(self._tril, matrix))

    def covariance(self) -> Form:
        return Form(self._tril @ self._tril.mT, is_diagonal=False)

    def precision(self) -> Form:
        return Form(torch.cholesky_inverse(self._tril), is_diagonal=False)

    def colour(self, noise: Tensor) -> Tensor:
        root = self._tril.to(noise.dtype).mT
        with no_autocast(noise):
            return self._rows(lambda rows: rows @ root, noise)

    def whiten(self, v: Tensor) -> Tensor:
        root = self._tril.mT
        return self._rows(
            lambda rows: torch.linalg.solve_triangular(root, rows, upper=True, left=False), v
        )

    def log_det_root(self, dtype: torch.dtype) -> Tensor:
        return self._tril.diagonal(dim1=-2, dim2=-1).log().sum(-1).to(dtype)

    def eigenvalues(self) -> Tensor:
        return torch.linalg.eigvalsh(self._tril @ self._tril.mT)

    def trace(self) -> Tensor:
        return self._tril.square().sum((-2, -1))

    def tril(self) -> Tensor:
        return self._tril

    def _rows(self, f: Callable[[Tensor], Tensor], v: Tensor) -> Tensor:
        """``f`` over all vectors that share a factor at once, as the rows of one matrix."""
        *batch, n, _ = self._tril.shape
        shape = torch.broadcast_shapes(v.shape[:-1], batch)
        own = len(shape) - len(batch)
        rows = v.expand(*shape, n).reshape(prod(shape[:own]), *shape[own:], n)
        return f(rows.movedim(0, -2)).movedim(-2, 0).reshape(*shape, n)


Sigma = Diagonal | Full


def sigma_from(form: str, parameter: Tensor) -> Sigma:
    """``Σ`` from one of the forms `WrappedNormal` takes."""
    if form == "scale":
        return Diagonal(parameter)
    matrix = wide(parameter)
    if form == "covariance_matrix":
        return Full(torch.linalg.cholesky(matrix))
    return Full(matrix if form == "scale_tril" else _precision_to_scale_tril(matrix))


def require_valid(form: str, parameter: Tensor) -> None:
    """Raises a `ValueError` unless the parameter is a positive definite ``Σ`` in its form."""
    if not torch.isfinite(parameter).all():
        raise ValueError(f"Expected `{form}` to be finite; got NaN or inf.")
    if form == "scale":
        if (parameter <= 0).any():
            raise ValueError(f"Expected `scale` > 0; got {_least(parameter)}.")
    elif form == "scale_tril":
        if (parameter.triu(1) != 0).any():
            raise ValueError(
                "Expected `scale_tril` lower-triangular; got entries above the diagonal."
            )
        diagonal = parameter.diagonal(dim1=-2, dim2=-1)
        if (diagonal <= 0).any():
            raise ValueError(f"Expected a diagonal of `scale_tril` > 0; got {_least(diagonal)}.")
    else:
        _require_positive_definite(form, wide(parameter))


def _require_positive_definite(form: str, matrix: Tensor) -> None:
    if not matrix.numel():
        return
    asymmetry = (matrix - matrix.mT).abs().max()
    if asymmetry > 1e-5 * matrix.abs().max():
        raise ValueError(
            f"Expected `{form}` symmetric; got entries that differ by {asymmetry:.3g}."
        )
    eigenvalues = torch.linalg.eigvalsh(matrix)
    if (eigenvalues <= 0).any():
        raise ValueError(
            f"Expected `{form}` positive definite; got eigenvalue {_least(eigenvalues)}."
        )


def _least(x: Tensor) -> float:
    return float(f"{x.min().item():.3g}")


def fit(form: str, parameter: Tensor, n: int) -> Tensor:
    """The parameter with its event dimensions broadcast to ``n``, or an error."""
    event = (n,) if form == "scale" else (n, n)
    if parameter.shape[-len(event) :] == event:
        return parameter
    if form == "scale" and parameter.shape[-1:] in ((), (1,)):  # one σ for all coordinates
        return parameter.expand(*parameter.shape[:-1], n)
    wanted = ", ".join(map(str, ("...", *event)))
    raise ValueError(
        f"Expected `{form}` of shape ({wanted}), as `loc` is in H^{n}; "
        f"got shape {tuple(parameter.shape)}."
    )
