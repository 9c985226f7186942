"""Points to estimate from, with weights: what may be given, and how it is held."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hyperwrap.constraints import Hyperboloid
from hyperwrap.curvature import Curvature, require_positive, root, times
from hyperwrap.errors import UserError
from hyperwrap.precision import wide

__all__ = ["Sample", "sample_from"]


@dataclass(frozen=True)
class Sample:
    """Points in the unit of the curvature, in float64, with the sample dimension next to last."""

    z: Tensor
    """Points of curvature −1, ``(*batch, N, n+1)``."""
    share: Tensor
    """Weights that add up to 1, ``(*batch, N)``."""
    total: Tensor
    """What the weights added up to, ``(*batch)``: N where none were given."""
    dtype: torch.dtype
    """That of the points as they came."""

    @property
    def n(self) -> int:
        return self.z.shape[-1] - 1

    @property
    def size(self) -> int:
        return self.z.shape[-2]

    def expand(self, batch: Sequence[int]) -> "Sample":
        """The same points over a larger batch."""
        z = self.z.expand(*batch, *self.z.shape[-2:])
        return replace(self, z=z, share=self.share.expand(z.shape[:-1]))

    def require_counts(self) -> None:
        """Raises a `UserError` where there are too few points for a region of a centre."""
        if (self.total <= self.n).any():
            if (self.total == self.size).all():
                raise UserError(
                    f"Expected more than n = {self.n} points for a region; got {self.size}."
                )
            raise UserError(
                f"Expected weights that add up to more than n = {self.n}, as they count points; "
                f"got {self.total.min().item():g}. Multiply them by the number of points."
            )

    def require_equal_weights(self, name: str) -> None:
        """Raises a `UserError` where some points weigh more, so that it cannot be resampled."""
        if not (self.share == self.share[..., :1]).all():
            raise UserError(f"Expected {name} without weights; got one with weights.")

    @property
    def is_one_point(self) -> Tensor:
        """Whether all points are the same but for the rounding of their coordinates, ``(*batch)``.

        Coordinates are compared, as rounding is even in them: far out it moves a point a long way.
        """
        first = self.z[..., :1, :]
        rounding = 2 * torch.finfo(self.dtype).eps * first[..., :1]
        return ((self.z - first).abs() <= rounding).all(-1).all(-1)

    def require_spread(self, what: str) -> None:
        """Raises a `UserError` where all points are the same."""
        if self.is_one_point.any():
            raise UserError(
                f"Expected points that differ; got {self.size} times the same point, "
                f"which leaves {what} = 0."
            )

    def mean(self, x: Tensor) -> Tensor:
        """``Σ w x`` over the sample, ``(*batch, N, …) → (*batch, …)``."""
        share = self.share.reshape((*self.share.shape, *[1] * (x.dim() - self.share.dim())))
        return (share * x).sum(self.share.dim() - 1)


def sample_from(
    points: Tensor, weights: Tensor | None, c: Curvature, name: str = "points"
) -> Sample:
    """Checks points ``(N, *batch, n+1)`` and weights that broadcast to ``(N, *batch)``."""
    require_positive(c)
    if not isinstance(points, Tensor) or not points.is_floating_point():
        kind = points.dtype if isinstance(points, Tensor) else type(points).__name__
        raise UserError(
            f"Expected `{name}` to be a tensor of floats; got {kind}. "
            "Use torch.as_tensor(…, dtype=torch.float64)."
        )
    if points.dim() < 2 or points.shape[-1] < 2 or not points.shape[0]:
        raise UserError(
            f"Expected `{name}` of shape (N, ..., n+1) with N ≥ 1 points of H^n; "
            f"got shape {tuple(points.shape)}."
        )
    Hyperboloid(c).require(name, points)
    z = wide(points)
    return weighted(times(z, root(c, z)), _weights(points, weights), points.dtype)


def weighted(z: Tensor, weights: Tensor, dtype: torch.dtype) -> Sample:
    """A `Sample` of points ``(N, *batch, n+1)`` in the unit of the curvature, unchecked."""
    total = weights.sum(0)
    return Sample(z.movedim(0, -2), (weights / total).movedim(0, -1), total, dtype)


def _weights(points: Tensor, weights: Tensor | None) -> Tensor:
    shape = points.shape[:-1]
    if weights is None:
        return wide(torch.ones(shape, device=points.device))
    given = torch.as_tensor(weights, device=points.device)
    wide_weights = wide(given)
    if given.dim() == 1:  # one per point, the same in the whole batch
        wide_weights = wide_weights.view((-1, *[1] * (len(shape) - 1)))
    try:
        wide_weights = wide_weights.expand(shape)
    except RuntimeError:
        wanted = " or ".join(dict.fromkeys((f"({shape[0]},)", str(tuple(shape)))))
        raise UserError(
            f"Expected `weights` of shape {wanted}, one for each point; "
            f"got shape {tuple(given.shape)}."
        ) from None
    if not ((wide_weights > 0) & wide_weights.isfinite()).all():
        worst = wide_weights[~((wide_weights > 0) & wide_weights.isfinite())].reshape(-1)[0]
        raise UserError(
            f"Expected `weights` > 0 and finite; got {worst.item():g}. "
            "Leave out the points that are not to count."
        )
    return wide_weights
