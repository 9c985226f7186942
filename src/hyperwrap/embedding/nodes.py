"""What a node is: a Gaussian or a point, in hyperbolic or in Euclidean space.

A `NodeType` knows how a draw from one node scores under others, how a centre moves, and which law
users get. A Gaussian scores a draw by its log-density, so that differences of scores estimate
differences of ``KL(a‖c)``; a point scores another by minus their distance.

Centres ``μ = exp₀(h)`` are held as ``h``. Their gradients and the steps taken with them are in the
*frames* of the nodes (see `hyperwrap.kernels.pairwise`), where they are of ordinary size at any
radius.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Independent, Normal

from hyperwrap import kernels
from hyperwrap.distributions import WrappedNormal
from hyperwrap.embedding.recipe import EUCLIDEAN, POINT, Recipe
from hyperwrap.errors import UserError

__all__ = ["Covariance", "Geometry", "NodeType", "Nodes", "node_type"]

Geometry = Literal["hyperbolic", "euclidean"]
Covariance = Literal["diagonal", "scalar", "radial", "none"]


class Nodes(NamedTuple):
    """Centres and scales, coordinates first, so that each is a contiguous plane."""

    h: Tensor
    """``(n, ...)``."""
    scale: Tensor
    """``(n or 1, ...)``; points have it and do not use it."""

    def at(self, nodes: Tensor) -> "Nodes":
        """The centres and scales of some nodes, ``(n, *nodes.shape)``."""
        return Nodes(taken(self.h, nodes), taken(self.scale, nodes))


def taken(x: Tensor, nodes: Tensor) -> Tensor:
    """``x[..., nodes]``, a few times as fast."""
    return x.index_select(-1, nodes.flatten()).unflatten(-1, nodes.shape)


@dataclass(frozen=True)
class NodeType(ABC):
    """A kind of node; `node_type` makes one from its names."""

    geometry: Geometry
    covariance: Covariance

    hyperbolic = False
    point = False
    reach = inf
    """The largest distance of a centre from the origin that float32 serves."""
    recipe = Recipe()
    """How it is best trained."""

    def __str__(self) -> str:
        return f"{self.geometry}, {self.covariance}"

    def columns(self, dim: int) -> int:
        """How many scales a node has."""
        return {"diagonal": dim, "radial": 2}.get(self.covariance, 1)

    def half_log_det(self, log_scale: Tensor, dim: int) -> Tensor:
        """``½·log det Σ (N,)`` from ``log σ (N, n, 2 or 1)``."""
        if self.covariance == "radial":
            return log_scale[:, 0] + (dim - 1) * log_scale[:, 1]
        return log_scale.mean(1) * dim

    @abstractmethod
    def scores(self, anchor: Nodes, noise: Tensor, *seen: Nodes) -> list[Tensor]:
        """How draws from the anchors, given by white noise ``(n, ...)``, score under each of the
        nodes that see them: ``(...)``, but for a constant.

        All shapes broadcast. Gradients of centres are in their frames.
        """

    @abstractmethod
    def move(self, h: Tensor, delta: Tensor) -> Tensor:
        """Tangent vectors ``(N, n)`` of centres moved by ``δ (N, n)`` in their frames."""

    @abstractmethod
    def from_frame(self, h: Tensor, grad: Tensor) -> Tensor:
        """``∂f/∂h (N, n)`` from a gradient ``(N, n)`` in the frames."""

    def scale_tril(self, h: Tensor, scale: Tensor) -> Tensor | None:
        """The factors ``(N, n, n)`` of the covariances, if those are not diagonal."""
        return None

    @abstractmethod
    def law(self, h: Tensor, scale: Tensor) -> WrappedNormal | Independent:
        """The distributions of nodes ``(..., n)``; a `UserError` where nodes are points."""


class _Hyperbolic(NodeType, ABC):
    hyperbolic = True
    reach = 40.0

    def move(self, h: Tensor, delta: Tensor) -> Tensor:
        return kernels.moved(h.T, delta.T).T

    def from_frame(self, h: Tensor, grad: Tensor) -> Tensor:
        return kernels.from_frame(h.T, grad.T).T


class _Euclidean(NodeType, ABC):
    def move(self, h: Tensor, delta: Tensor) -> Tensor:
        return h + delta

    def from_frame(self, h: Tensor, grad: Tensor) -> Tensor:
        return grad


class _Point(NodeType, ABC):
    point = True
    recipe = POINT

    def law(self, h: Tensor, scale: Tensor) -> WrappedNormal | Independent:
        raise UserError(
            "Expected nodes that are distributions; those of this embedding are points. "
            "Use `neighbours` or `radius`, or embed with covariance diagonal or scalar."
        )


class HyperbolicGaussian(_Hyperbolic):
    """``G(exp₀(h), diag σ²)``."""

    def scores(self, anchor: Nodes, noise: Tensor, *seen: Nodes) -> list[Tensor]:
        return kernels.pairwise_log_prob(anchor.h, anchor.scale * noise, *seen, in_frames=True)

    def law(self, h: Tensor, scale: Tensor) -> WrappedNormal:
        return WrappedNormal(tangent=h, scale=scale)


class RadialGaussian(_Hyperbolic):
    """``G(exp₀(h), Σ)`` with one scale along the ray from the origin, and one across it."""

    def scores(self, anchor: Nodes, noise: Tensor, *seen: Nodes) -> list[Tensor]:
        along, across = anchor.scale
        m = _direction(anchor.h).detach().to(noise.dtype)  # the frame turns with it
        draw = across * noise + (along - across) * (noise * m).sum(0) * m
        return kernels.pairwise_log_prob(anchor.h, draw, *seen, in_frames=True, radial=True)

    def scale_tril(self, h: Tensor, scale: Tensor) -> Tensor:
        return torch.linalg.cholesky(radial_covariance(h.double(), scale.double()))

    def law(self, h: Tensor, scale: Tensor) -> WrappedNormal:
        return WrappedNormal(tangent=h, scale_tril=self.scale_tril(h, scale))


def radial_covariance(h: Tensor, scale: Tensor) -> Tensor:
    """``Σ (..., n, n)`` from the scales ``(..., 2)`` along and across the rays of ``h (..., n)``.

    At the origin, where there is no ray, all directions are across.
    """
    m = _direction(h, -1)
    along, across = scale.square()[..., None, None].unbind(-3)
    ray = m.unsqueeze(-1) * m.unsqueeze(-2)
    return across * torch.eye(h.shape[-1], dtype=h.dtype) + (along - across) * ray


def _direction(h: Tensor, dim: int = 0) -> Tensor:
    return h / torch.linalg.vector_norm(h, dim=dim, keepdim=True).clamp_min(1e-30)


class EuclideanGaussian(_Euclidean):
    """``N(h, diag σ²)``."""

    recipe = EUCLIDEAN

    def scores(self, anchor: Nodes, noise: Tensor, *seen: Nodes) -> list[Tensor]:
        z = anchor.h + anchor.scale * noise
        return [_normal_log_prob(z, nodes) for nodes in seen]

    def law(self, h: Tensor, scale: Tensor) -> Independent:
        return Independent(Normal(h, scale.expand_as(h)), 1)


def _normal_log_prob(z: Tensor, nodes: Nodes) -> Tensor:
    v = (z - nodes.h) / nodes.scale
    log_scales = nodes.scale.log().sum(0) * (len(v) / len(nodes.scale))
    return -0.5 * (v * v).sum(0) - log_scales


class HyperbolicPoint(_Hyperbolic, _Point):
    """``exp₀(h)``, scored by minus the distance (Nickel & Kiela, 2017)."""

    def scores(self, anchor: Nodes, noise: Tensor, *seen: Nodes) -> list[Tensor]:
        t, centres = torch.zeros_like(anchor.h), [nodes.h for nodes in seen]
        return [-d for d in kernels.pairwise_dist(anchor.h, t, *centres, in_frames=True)]


class EuclideanPoint(_Euclidean, _Point):
    """``h``, scored by minus the distance."""

    def scores(self, anchor: Nodes, noise: Tensor, *seen: Nodes) -> list[Tensor]:
        return [-torch.linalg.vector_norm(anchor.h - nodes.h, dim=0) for nodes in seen]


_TYPES: Mapping[Geometry, Mapping[Covariance, type[NodeType]]] = {
    "hyperbolic": {
        "diagonal": HyperbolicGaussian,
        "scalar": HyperbolicGaussian,
        "radial": RadialGaussian,
        "none": HyperbolicPoint,
    },
    "euclidean": {
        "diagonal": EuclideanGaussian,
        "scalar": EuclideanGaussian,
        "none": EuclideanPoint,
    },
}


def node_type(geometry: Geometry = "hyperbolic", covariance: Covariance = "diagonal") -> NodeType:
    """The type of node with these names.

    Args:
        geometry: ``hyperbolic`` or ``euclidean``.
        covariance: ``diagonal``, one scale per direction; ``scalar``, one scale per node;
            ``radial``, one scale along the ray from the origin and one across it, in hyperbolic
            space only; or ``none``, nodes are points.

    >>> print(node_type("euclidean", "scalar"))
    euclidean, scalar
    """
    if geometry not in _TYPES:
        raise UserError(f"Expected `geometry` hyperbolic or euclidean; got {geometry!r}.")
    if covariance not in _TYPES[geometry]:
        allowed = " or ".join(", ".join(_TYPES[geometry]).rsplit(", ", 1))
        raise UserError(f"Expected `covariance` {allowed} in {geometry} space; got {covariance!r}.")
    return _TYPES[geometry][covariance](geometry, covariance)
