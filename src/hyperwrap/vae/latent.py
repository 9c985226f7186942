"""The latent space of a VAE: what the encoder's output means, and what the decoder is given.

`HyperbolicLatent` and `EuclideanLatent` answer the same questions, so this one choice makes a model
hyperbolic or vanilla (§4.1):

| | prior | posterior from the encoder's output ``(h, s)`` |
|---|---|---|
| `HyperbolicLatent` | ``G(μ₀, I)`` | ``G(exp₀(h), Σ(s))`` |
| `EuclideanLatent` | ``N(0, I)`` | ``N(h, Σ(s))`` |

``Σ`` is ``softplus(s)²`` on the diagonal, one such scalar, or ``LLᵀ`` with ``softplus`` on the
diagonal of ``L``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import expm1, log, pi
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, MultivariateNormal, Normal
from torch.nn.functional import softplus

from hyperwrap import charts, lorentz
from hyperwrap.curvature import Curvature
from hyperwrap.distributions import WrappedNormal
from hyperwrap.precision import at_least_float32
from hyperwrap.special import squared_norm

__all__ = [
    "Coordinates",
    "Covariance",
    "EuclideanLatent",
    "HyperbolicLatent",
    "Latent",
    "LatentSample",
]

Covariance = Literal["diagonal", "scalar", "full"]
Coordinates = Literal["hyperboloid", "tangent", "poincare"]


class LatentSample(NamedTuple):
    """Latents ``(*sample_shape, ..., d)`` and their densities ``log q(z|x)`` and ``log p(z)``."""

    z: Tensor
    log_q: Tensor
    log_p: Tensor


class Latent(nn.Module, ABC):
    """What `HyperbolicLatent` and `EuclideanLatent` have in common: the shape of ``Σ``."""

    _like: Tensor

    def __init__(self, n: int, covariance: Covariance) -> None:
        super().__init__()
        if n < 1:
            raise ValueError(f"Expected `n` ≥ 1; got {n}.")
        if covariance not in ("diagonal", "scalar", "full"):
            raise ValueError(f"Expected `covariance` diagonal, scalar or full; got {covariance!r}.")
        self.n, self.covariance = n, covariance
        self.register_buffer("_like", torch.zeros(()), persistent=False)  # knows device and dtype

    @property
    def encoder_outputs(self) -> int:
        """How many numbers the encoder has to return: ``n`` for the centre, the rest for ``Σ``."""
        n = self.n
        return n + {"diagonal": n, "scalar": 1, "full": n * (n + 1) // 2}[self.covariance]

    @property
    @abstractmethod
    def decoder_inputs(self) -> int:
        """How many numbers the decoder is given."""

    @abstractmethod
    def prior(self) -> Distribution: ...

    @abstractmethod
    def posterior(self, encoded: Tensor) -> Distribution:
        """``q(z|x)`` from the encoder's output ``(..., encoder_outputs)``."""

    @abstractmethod
    def rsample(self, encoded: Tensor, sample_shape: Sequence[int] = ()) -> LatentSample:
        """Reparametrised draws from ``q(z|x)`` and both densities."""

    @abstractmethod
    def centre(self, encoded: Tensor) -> Tensor:
        """The mean of ``q(z|x)``, a latent."""

    @abstractmethod
    def for_decoder(self, z: Tensor) -> Tensor:
        """What the decoder sees of a latent, ``(..., decoder_inputs)``."""

    @abstractmethod
    def distance(self, a: Tensor, b: Tensor) -> Tensor: ...

    @abstractmethod
    def geodesic(self, a: Tensor, b: Tensor, t: Tensor) -> Tensor:
        """The point at fraction ``t`` of the way from ``a`` to ``b``."""

    def extra_repr(self) -> str:
        return f"n={self.n}, covariance={self.covariance!r}"

    def _sigma(self, s: Tensor) -> dict[str, Tensor]:
        """``Σ`` from the encoder's numbers, as a keyword of the distributions."""
        if self.covariance != "full":
            return {"scale": softplus(s)}
        n = self.n
        rows, columns = torch.tril_indices(n, n, device=s.device)
        entries = torch.where(rows == columns, softplus(s), s)
        flat = s.new_zeros(*s.shape[:-1], n * n).index_copy(-1, rows * n + columns, entries)
        return {"scale_tril": flat.unflatten(-1, (n, n))}


class EuclideanLatent(Latent):
    """Latents in ``R^n``: the vanilla VAE, and with ``β ≠ 1`` the β-VAE.

    >>> EuclideanLatent(2).rsample(torch.zeros(3, 4)).z.shape
    torch.Size([3, 2])
    """

    def __init__(self, n: int, *, covariance: Covariance = "diagonal") -> None:
        super().__init__(n, covariance)

    @property
    def decoder_inputs(self) -> int:
        return self.n

    def prior(self) -> Distribution:
        zeros = self._like.new_zeros(self.n)
        return Independent(Normal(zeros, zeros + 1), 1)

    def posterior(self, encoded: Tensor) -> Distribution:
        h, sigma = self.centre(encoded), self._sigma(encoded[..., self.n :])
        if "scale" in sigma:
            return Independent(
                Normal(h, sigma["scale"], validate_args=False), 1, validate_args=False
            )
        return MultivariateNormal(h, **sigma, validate_args=False)

    def rsample(self, encoded: Tensor, sample_shape: Sequence[int] = ()) -> LatentSample:
        q = self.posterior(encoded)
        z = q.rsample(torch.Size(sample_shape))
        return LatentSample(z, q.log_prob(z), -0.5 * (squared_norm(z) + self.n * log(2 * pi)))

    def centre(self, encoded: Tensor) -> Tensor:
        return encoded[..., : self.n]

    def for_decoder(self, z: Tensor) -> Tensor:
        return z

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.linalg.vector_norm(a - b, dim=-1)

    def geodesic(self, a: Tensor, b: Tensor, t: Tensor) -> Tensor:
        return a + t.unsqueeze(-1) * (b - a)


class HyperbolicLatent(Latent):
    """Latents in ``H^n`` of curvature ``−c``, as points of the Lorentz model ``(..., n+1)``.

    Args:
        n: the dimension.
        covariance: the form of the posterior's covariance.
        coordinates: what the decoder is given: the ``n+1`` ambient coordinates (the paper), the
            ``n`` of the tangent vector at the origin, or those of the Poincaré ball.
        c: the curvature is ``−c``; with ``learn_c``, where learning starts.
        learn_c: whether ``c`` is a parameter of the model.

    >>> HyperbolicLatent(2).rsample(torch.zeros(3, 4)).z.shape
    torch.Size([3, 3])
    """

    def __init__(
        self,
        n: int,
        *,
        covariance: Covariance = "diagonal",
        coordinates: Coordinates = "hyperboloid",
        c: float = 1.0,
        learn_c: bool = False,
    ) -> None:
        super().__init__(n, covariance)
        if coordinates not in _COORDINATES:
            raise ValueError(
                f"Expected `coordinates` {', '.join(_COORDINATES)}; got {coordinates!r}."
            )
        if not c > 0:
            raise ValueError(f"Expected `c` > 0 (the curvature is −c); got {c}.")
        self.coordinates, self._c = coordinates, c
        self._fixed_prior: WrappedNormal | None = None
        self.raw_c = nn.Parameter(torch.tensor(c + log(-expm1(-c)))) if learn_c else None

    def extra_repr(self) -> str:
        c = f"c={self._c}" if self.raw_c is None else f"c learned from {self._c}"
        return f"{super().extra_repr()}, coordinates={self.coordinates!r}, {c}"

    @property
    def c(self) -> Curvature:
        return self._c if self.raw_c is None else softplus(self.raw_c)

    @property
    def decoder_inputs(self) -> int:
        return self.n + (self.coordinates == "hyperboloid")

    def prior(self) -> WrappedNormal:
        origin = self._like.new_zeros(self.n)
        return WrappedNormal(tangent=origin, scale=1.0, c=self.c, validate_args=False)

    def posterior(self, encoded: Tensor) -> WrappedNormal:
        encoded = at_least_float32(encoded)
        h, sigma = encoded[..., : self.n], self._sigma(encoded[..., self.n :])
        return WrappedNormal(tangent=h, **sigma, c=self.c, validate_args=False)

    def rsample(self, encoded: Tensor, sample_shape: Sequence[int] = ()) -> LatentSample:
        # Made once: a law of three numbers, but as dear as a tenth of all that follows.
        if self._fixed_prior is None or self._fixed_prior.tangent.device != encoded.device:
            self._fixed_prior = self.prior() if self.raw_c is None else None
        prior = self._fixed_prior or self.prior()
        return LatentSample(*self.posterior(encoded).rsample_against(prior, sample_shape))

    def centre(self, encoded: Tensor) -> Tensor:
        return lorentz.exp0(encoded[..., : self.n], c=self.c)

    def for_decoder(self, z: Tensor) -> Tensor:
        return _COORDINATES[self.coordinates](z, c=self.c)

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        return lorentz.dist(a, b, c=self.c)

    def geodesic(self, a: Tensor, b: Tensor, t: Tensor) -> Tensor:
        step = t.unsqueeze(-1) * lorentz.unwrap(a, b, c=self.c)
        return lorentz.wrap(a, step, c=self.c)


def _ambient(z: Tensor, *, c: Curvature) -> Tensor:
    return z


_COORDINATES = {"hyperboloid": _ambient, "tangent": lorentz.log0, "poincare": charts.to_poincare}
