r"""A VAE that starts as factor analysis.

With the prior ``G(μ₀, I)``, which is ``exp₀`` of a normal law, and a decoder that is linear in the
tangent vector ``h`` at the origin,

    x = W h + b + ε        ε_j ~ N(0, ψ_j)

a hyperbolic VAE is factor analysis to the letter: one model has the other's density. So training
starts there, from a fit that takes no training, and all that it does is compared with it on rows
held back. In Euclidean space even the posterior is right: its mean is linear in ``x``, and its
covariance ``(I + W Ψ⁻¹ Wᵀ)⁻¹`` is the same for all rows, diagonal after a rotation.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA, FactorAnalysis
from torch import Tensor

from hyperwrap.vae.likelihoods import Bernoulli, Counts, Gaussian, Likelihood, PerColumn
from hyperwrap.vae.model import VAE

__all__ = ["start_linear"]

Floats = NDArray[np.float64]

_ITERATIONS, _TOLERANCE = 300, 1e-2
_LEAST_NOISE = 1e-6


class _Factors(NamedTuple):
    loadings: Floats
    """``W``, ``(n, columns)``; ``W Ψ⁻¹ Wᵀ`` is diagonal."""
    mean: Floats
    noise: Floats
    """``ψ``."""

    @property
    def strength(self) -> Floats:
        """The diagonal of ``W Ψ⁻¹ Wᵀ``."""
        return (np.square(self.loadings) / self.noise).sum(1)


@torch.no_grad()
def start_linear(model: VAE, x: Tensor, *, shared: bool, seed: int) -> None:
    """Sets the linear parts of encoder and decoder by factor analysis of a table, and the noise.

    Args:
        model: of `networks.mlp` with ``beside_linear``, the decoder seeing tangent vectors.
        x: the rows to fit, as the model sees them.
        shared: whether all columns have the same noise; then these are principal components.
        seed: random seed.
    """
    view = model.likelihood.for_encoder(x.double()).cpu().numpy()
    factors = _rotated(_fit(view, model.latent.n, shared, seed))
    _set_encoder(model, factors)
    law = model.likelihood
    bias, slope = _output(law, x.double().mean(0).cpu().numpy(), factors)
    decoder: Any = model.decoder
    decoder[0].linear.bias.copy_(torch.from_numpy(bias))
    decoder[0].linear.weight.copy_(torch.from_numpy(slope))
    if isinstance(law, PerColumn) and isinstance(law.law, Gaussian):
        law.s.copy_(
            torch.from_numpy(_softplus_inverse(np.sqrt(factors.noise)) - 0.5413)[: len(law.s)]
        )


def _fit(x: Floats, n: int, shared: bool, seed: int) -> _Factors:
    k = min(n, x.shape[1], len(x) - 1)
    if not np.ptp(x, 0).any():
        return _Factors(np.zeros((n, x.shape[1])), x[0], np.full(x.shape[1], _LEAST_NOISE))
    if shared:
        found: Any = PCA(
            k, svd_solver="full" if min(x.shape) <= 500 else "randomized", random_state=seed
        ).fit(x)
        noise = max(float(found.noise_variance_), _LEAST_NOISE)
        size = np.sqrt(np.maximum(found.explained_variance_ - noise, 0))
        loadings, noise = size[:, None] * found.components_, np.full(x.shape[1], noise)
    else:
        found = FactorAnalysis(k, max_iter=_ITERATIONS, tol=_TOLERANCE, random_state=seed).fit(x)
        loadings, noise = found.components_, np.maximum(found.noise_variance_, _LEAST_NOISE)
    padded = np.zeros((n, x.shape[1]))
    padded[:k] = loadings
    return _Factors(padded, found.mean_, noise)


def _rotated(factors: _Factors) -> _Factors:
    w = factors.loadings
    _, turn = np.linalg.eigh((w / factors.noise) @ w.T)
    return factors._replace(loadings=turn.T[::-1] @ w)


def _set_encoder(model: VAE, factors: _Factors) -> None:
    """The posterior: mean ``(I + D)⁻¹ W Ψ⁻¹ (x − b)`` and variances ``1/(1 + D)``."""
    n, shrunk = model.latent.n, 1 / (1 + factors.strength)
    weight = shrunk[:, None] * factors.loadings / factors.noise
    linear = model.encoder[0].linear  # pyright: ignore
    linear.weight.zero_()
    linear.weight[:, :n] = torch.from_numpy(weight.T)
    linear.bias[:n] = torch.from_numpy(-weight @ factors.mean)
    linear.bias[n:] = torch.from_numpy(_softplus_inverse(np.sqrt(shrunk)))


def _output(law: Likelihood, mean: Floats, factors: _Factors) -> tuple[Floats, Floats]:
    """The decoder's bias, and its weights ``(n, columns)``."""
    law = law.law if isinstance(law, PerColumn) else law
    if isinstance(law, Bernoulli):
        p = np.clip(mean, 0.01, 0.99)
        return np.log(p / (1 - p)), factors.loadings / (p * (1 - p))
    if isinstance(law, Counts):
        share = mean / max(mean.sum(), 1e-12)
        return np.log(np.maximum(share, 1e-3 / len(share))), factors.loadings
    return factors.mean, factors.loadings


def _softplus_inverse(y: Floats) -> Floats:
    return np.where(y > 20, y, np.log(np.expm1(np.maximum(y, 1e-12))))
