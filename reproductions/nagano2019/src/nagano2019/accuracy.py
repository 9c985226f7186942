r"""How exact ``log_prob`` is in float32, beside the formulas of the paper.

For each radius ``R``: 100 centres ``μ`` at distance ``R`` from the origin of ``H⁵`` in random
directions, and near each one point ``z ~ G(μ, σ²I)``, ``σ = ½``. Both are rounded to float32, and
the truth is the density of *these* points, computed with 80 digits: what is measured is the
formula, not the rounding of its arguments.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any, TypeAlias

import mpmath as mp
import numpy as np
import torch
from torch import Tensor

from hyperwrap import lorentz
from hyperwrap.distributions import WrappedNormal
from hyperwrap.runs import Row
from hyperwrap.training import Progress
from nagano2019.figures import Array, Figure, errors_by_radius
from nagano2019.textbook import TextbookWrappedNormal

Mpf: TypeAlias = Any  # mpmath carries no types

__all__ = ["RADII", "Accuracy", "figure", "measuring", "points", "rows", "true_log_prob"]

RADII = (1, 3, 5, 8, 10, 12, 15, 20, 40)
N, SIGMA, POINTS = 5, 0.5, 100
_DIGITS = 80  # at R = 40, α = −⟨μ,z⟩ is a difference of numbers of 35 digits


@dataclass(frozen=True)
class Accuracy:
    """Largest ``|error|/(1 + |truth|)`` of the finite answers, if any; share of the others."""

    error: float | None
    not_finite: float


@dataclass(frozen=True)
class Comparison:
    """Both methods, for the same densities at one radius."""

    radius: float
    hyperwrap: Accuracy
    textbook: Accuracy


def measuring(
    seed: int, radii: Sequence[float] = RADII
) -> Generator[Progress, None, list[Comparison]]:
    """The accuracy of both methods, in float32, at each radius."""
    generator, found = torch.Generator().manual_seed(seed), []
    for radius in radii:
        found.append(_compare(radius, *points(radius, generator)))
        yield Progress(len(found), len(radii), name="accuracy")
    return found


def points(radius: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Centres and points, ``(100, 6)`` each, with space parts that are float32 numbers."""
    h, noise = torch.randn(2, POINTS, N, generator=generator, dtype=torch.float64)
    mu = lorentz.exp0(radius * h / h.norm(dim=-1, keepdim=True))
    z = lorentz.wrap(mu, SIGMA * noise)
    return lorentz.lift(mu[:, 1:].float()), lorentz.lift(z[:, 1:].float())


def _compare(radius: float, mu: Tensor, z: Tensor) -> Comparison:
    truths = [true_log_prob(m, x) for m, x in zip(mu.tolist(), z.tolist(), strict=True)]
    ours = WrappedNormal(mu, SIGMA).log_prob(z)
    textbook = TextbookWrappedNormal(mu, torch.full((N,), SIGMA)).log_prob(z)
    return Comparison(radius, _accuracy(ours, truths), _accuracy(textbook, truths))


def _accuracy(answers: Tensor, truths: Sequence[Mpf]) -> Accuracy:
    errors = [
        float(abs(answer - truth) / (1 + abs(truth)))
        for answer, truth in zip(answers.tolist(), truths, strict=True)
        if isfinite(answer)
    ]
    return Accuracy(max(errors, default=None), 1 - len(errors) / len(truths))


def true_log_prob(mu: Sequence[float], z: Sequence[float]) -> Mpf:
    """``log G(z; μ, σ²I) = −r²/2σ² − n·log(σ√2π) − (n−1)·log(sinh r / r)``, ``cosh r = −⟨μ,z⟩``.

    Only the space parts of ``mu`` and ``z`` are read.
    """
    with mp.workdps(_DIGITS):
        m, x = mu[1:], z[1:]
        m0, x0 = (mp.sqrt(1 + mp.fdot(s, s)) for s in (m, x))
        r = mp.acosh(m0 * x0 - mp.fdot(m, x))
        gaussian = -((r / SIGMA) ** 2) / 2 - N * mp.log(SIGMA * mp.sqrt(2 * mp.pi))
        return gaussian - (N - 1) * mp.log(mp.sinh(r) / r)


# --- as results and as a figure ------------------------------------------------------------------


def rows(comparisons: Sequence[Comparison]) -> list[Row]:
    """Four numbers per radius."""
    return [
        Row(f"R={each.radius:g}", column, value)
        for each in comparisons
        for column, value in (
            ("hyperwrap max error", each.hyperwrap.error),
            ("hyperwrap not finite", each.hyperwrap.not_finite),
            ("textbook max error", each.textbook.error),
            ("textbook not finite", each.textbook.not_finite),
        )
    ]


def figure(comparisons: Sequence[Comparison]) -> Figure:
    """Error against radius, for both methods."""
    errors = {
        "hyperwrap": _arrays([each.hyperwrap for each in comparisons]),
        "textbook formulas": _arrays([each.textbook for each in comparisons]),
    }
    unit = torch.finfo(torch.float32).eps / 2
    return errors_by_radius([each.radius for each in comparisons], errors, unit=unit)


def _arrays(accuracies: Sequence[Accuracy]) -> tuple[Array, Array]:
    errors = np.array([nan if each.error is None else each.error for each in accuracies])
    return errors, np.array([each.not_finite for each in accuracies])
