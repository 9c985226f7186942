"""Mixtures of wrapped normals, whose mean lies on the manifold."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Size, Tensor
from torch.distributions import Categorical, MixtureSameFamily

from hyperwrap.curvature import Curvature, over, root, times
from hyperwrap.distributions.base import WrappedDistribution
from hyperwrap.distributions.centres import differentiable, frechet_centre, seen_from
from hyperwrap.distributions.cubature import normal_pairs
from hyperwrap.distributions.em import MixtureFit, fit_mixture
from hyperwrap.distributions.fitting import CovarianceShape
from hyperwrap.distributions.samples import Sample, weighted
from hyperwrap.distributions.wrapped_normal import WrappedNormal
from hyperwrap.errors import UserError
from hyperwrap.precision import traced, wide
from hyperwrap.special import squared_norm

__all__ = ["WrappedNormalMixture"]

_PAIRS = 1024  # of the rule behind the mean
_PAIRS_AT_ONCE = 2**21  # of a point and a component


class WrappedNormalMixture(MixtureSameFamily):
    """The mixture ``Σₖ πₖ G(μₖ, Σₖ)``: torch's `MixtureSameFamily`, with a mean on the manifold.

    It takes what that takes: the weights ``π``, a `Categorical` of K components, and a
    `WrappedNormal` whose last batch dimension is K.

    >>> from torch.distributions import Categorical
    >>> h = torch.tensor([[2.0, 0.0], [-2.0, 0.0]])
    >>> parts = hw.WrappedNormal(tangent=h, scale=0.5)
    >>> law = hw.WrappedNormalMixture(Categorical(torch.tensor([0.5, 0.5])), parts)
    >>> hw.lorentz.dist(law.mean, hw.lorentz.origin(2)) < 1e-5
    tensor(True)
    >>> law.responsibilities(hw.lorentz.exp0(h)).round()
    tensor([[1., 0.],
            [0., 1.]])
    """

    __call__ = WrappedDistribution.__call__

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: WrappedNormal,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(component_distribution, WrappedNormal):
            name = type(component_distribution).__name__
            raise UserError(
                f"Expected components that are a WrappedNormal; got {name}. "
                "For other laws, use torch.distributions.MixtureSameFamily."
            )
        super().__init__(mixture_distribution, component_distribution, validate_args=validate_args)
        c = component_distribution.c
        if isinstance(c, Tensor) and c.dim() and not traced(c) and (c != c[..., :1]).any():
            raise UserError("Expected components of one curvature; got several.")

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The same mixture over a larger batch; no memory is copied."""
        new = self._get_checked_instance(WrappedNormalMixture, _instance)
        return super().expand(Size(batch_shape), new)

    @classmethod
    def fit(
        cls,
        points: Tensor,
        components: int,
        weights: Tensor | None = None,
        covariance: CovarianceShape = "full",
        c: Curvature = 1.0,
        *,
        starts: int = 5,
        seed: int = 0,
    ) -> MixtureFit:
        """The best of several runs of expectation–maximisation: see `em`.

        Args:
            points: ``(N, n+1)``.
            components: how many, K.
            weights: how often each point counts, ``(N,)``; once, if not given.
            covariance: the shape of each ``Σₖ``, ``"full"``, ``"diagonal"`` or ``"scalar"``.
            c: the curvature of the points is ``−c``.
            starts: how many runs are started, each from other points.
            seed: random seed of the starts.

        >>> truth = hw.WrappedNormal(tangent=torch.tensor([[3.0, 0.0], [-3.0, 0.0]]), scale=0.4)
        >>> fit = hw.WrappedNormalMixture.fit(truth.sample((200,)).flatten(0, 1), components=2)
        >>> fit.law.mixture_distribution.probs
        tensor([0.5000, 0.5000])
        """
        return fit_mixture(cls, points, components, weights, covariance, c, starts, seed)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.mixture_distribution}, {self.components})"

    def log_prob(self, x: Tensor) -> Tensor:
        """``log p(z)``, ``(..., n+1) → (...)``, in chunks where there are many components."""
        shape = torch.broadcast_shapes(x.shape[:-1], self.batch_shape)
        pairs = shape.numel() * self.components.batch_shape[-1]
        batch = Size((*[1] * (len(shape) - len(self.batch_shape)), *self.batch_shape))
        free = [i for i, size in enumerate(batch) if size == 1]  # along which there is one law
        if pairs <= _PAIRS_AT_ONCE or not free:
            return super().log_prob(x)
        longest = max(free, key=shape.__getitem__)
        rows = max(shape[longest] * _PAIRS_AT_ONCE // pairs, 1)
        parts = x.expand(*shape, -1).split(rows, longest)
        scored = [super(WrappedNormalMixture, self).log_prob(part) for part in parts]
        return torch.cat(scored, longest)

    @property
    def components(self) -> WrappedNormal:
        """The components, ``(*batch_shape, K)``."""
        return self.component_distribution  # pyright: ignore[reportReturnType]

    @property
    def c(self) -> Curvature:
        """The curvature is ``−c``, the same for all components."""
        c = self.components.c
        return c[..., 0] if isinstance(c, Tensor) and c.dim() else c

    def responsibilities(self, value: Tensor) -> Tensor:
        """The probability that each point came from each component, ``(..., n+1) → (..., K)``."""
        log_p = self.components.log_prob(value.unsqueeze(-2))
        return torch.softmax(log_p + self.mixture_distribution.logits, -1)

    @property
    def mean(self) -> Tensor:
        """The Fréchet mean, ``(*batch_shape, n+1)``, by a fixed rule of 2,048 points per component.

        Exact where the mixture is symmetric about its mean.
        """
        mean = self._frechet_mean(nodes := self._nodes())
        return over(mean, root(self.c, mean)).to(nodes.dtype)

    @property
    def variance(self) -> Tensor:
        """The mean squared distance from the mean, ``(*batch_shape)``, by the same rule."""
        nodes = self._nodes()
        q = squared_norm(seen_from(self._frechet_mean(nodes), nodes))
        return (nodes.mean(q) / self.c).to(nodes.dtype)

    def _frechet_mean(self, nodes: Sample) -> Tensor:
        return differentiable(frechet_centre(nodes), nodes)

    def _nodes(self) -> Sample:
        """Points of the mixture with weights, such that sums over them are expectations."""
        parts = self.components
        noise, weight = normal_pairs(_PAIRS, parts.n, parts.loc)
        noise = noise.view(-1, *[1] * len(parts.batch_shape), parts.n)
        noise = noise.expand(-1, *parts.batch_shape, -1)
        z = wide(parts._wrap(parts._sigma.colour(noise))[0])
        z = times(z, root(parts.c, z)).movedim(-2, 1).flatten(0, 1)
        share = wide(self.mixture_distribution.probs).expand(parts.batch_shape).movedim(-1, 0)
        share = (wide(weight).view(-1, *[1] * share.dim()) * share).flatten(0, 1)
        return weighted(z, share, parts.loc.dtype)
