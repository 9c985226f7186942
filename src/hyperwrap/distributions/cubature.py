"""Points that stand for ``N(0, I)``: fixed, made once for each ``n``, the same at every call.

They are made by NumPy, so that no transform and no compiler of torch is in the way, and kept.
"""

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["even_rule", "normal_pairs"]

_MOST = 21_201  # dimensions of a Sobol sequence


def normal_pairs(pairs: int, n: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """A low-discrepancy sample of ``N(0, I)`` with its mirror image, ``(2·pairs, n)``, and weights.

    Exact for odd functions, and for what `even_rule` is exact for.
    """
    noise, weight = even_rule(pairs, n, like)
    return torch.cat([noise, -noise]), torch.cat([weight, weight]) / 2


def even_rule(pairs: int, n: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Half of such a sample, ``(pairs, n)``, with weights, ``(pairs)``.

    ``Σ wᵢ(f(εᵢ) + f(−εᵢ))/2`` is exact for quadratic forms if there are enough pairs for that, else
    for ``|ε|²``.
    """
    rule = _rule(pairs, n).to(like)
    return rule[:, :n], rule[:, n]


@torch.library.custom_op("hyperwrap::normal_rule", mutates_args=())
def _rule(pairs: int, n: int) -> Tensor:
    return torch.from_numpy(np.column_stack([_noise(pairs, n), _weights(pairs, n)]))


@_rule.register_fake
def _(pairs: int, n: int) -> Tensor:
    return torch.empty(pairs, n + 1, dtype=torch.float64, device="cpu")


@cache
def _noise(pairs: int, n: int) -> NDArray[np.float64]:
    if n > _MOST:
        return np.random.default_rng(0).standard_normal((pairs, n))
    from scipy.special import ndtri
    from scipy.stats import qmc

    uniform = qmc.Sobol(n, scramble=True, rng=0).random(pairs)
    return ndtri(uniform.clip(1e-12, 1 - 1e-12))


@cache
def _weights(pairs: int, n: int) -> NDArray[np.float64]:
    """``1/N``, corrected by least squares such that the moments come out right."""
    noise = _noise(pairs, n)
    moments = (noise**2).sum(1, keepdims=True) - n
    if 5 * n * (n + 1) < pairs:
        i, j = np.triu_indices(n)
        moments = noise[:, i] * noise[:, j] - (i == j)
    mean = moments.mean(0)
    slopes = np.linalg.lstsq(moments - mean, np.eye(pairs) - 1 / pairs, rcond=None)[0]
    return 1 / pairs - mean @ slopes
