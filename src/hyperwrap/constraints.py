"""The hyperboloid as a `torch.distributions` constraint, and the map that reaches all of it."""

import torch
from torch import Tensor
from torch.distributions import Transform, biject_to, constraints, transform_to

from hyperwrap import lorentz
from hyperwrap.curvature import Curvature
from hyperwrap.precision import wide
from hyperwrap.special import log_sinhc_sqrt, squared_norm

__all__ = ["ExpOrigin", "Hyperboloid", "hyperboloid"]


class Hyperboloid(constraints.Constraint):
    """Points of the Lorentz model of curvature ``−c``: finite, upper sheet, ``⟨x,x⟩ = −1/c``.

    The time part may be off by ``√eps`` of itself, 3e-4 in float32, and in float64 by what
    rounding to float32 explains, since points come from there: no function here reads it, the
    check is there to catch vectors that are not points at all.

    >>> hyperboloid.check(torch.tensor([[1.0, 0.0], [2.0, 0.0]]))
    tensor([ True, False])
    """

    is_discrete = False
    event_dim = 1

    def __init__(self, c: Curvature = 1.0) -> None:
        self.c = c
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        time, expected = _time_parts(value, self.c)
        tolerance = max(torch.finfo(value.dtype).eps ** 0.5, 4 * torch.finfo(torch.float32).eps)
        on = (time - expected).abs() <= tolerance * expected
        return on & torch.isfinite(value).all(-1)

    def require(self, name: str, points: Tensor) -> None:
        """Raises a `ValueError` that shows the first point that is not on the hyperboloid."""
        self._require(f"`{name}` on the hyperboloid", points)

    def require_value(self, value: Tensor) -> None:
        """`require` for what a law is to score, in the words that torch has for it."""
        self._require(f"{to_be_within_the_support(value)} {self}", value)

    def _require(self, what: str, value: Tensor) -> None:
        bad = ~self.check(value)
        if not bad.any():
            return
        if not torch.isfinite(value).all():
            raise ValueError(
                f"Expected {what}; got NaN or inf. {value.dtype} coordinates "
                f"overflow at radius {overflow_radius(value.dtype):.0f}/√c: use "
                f"{wider(value.dtype)}smaller radii. "
                "NaN also comes of chart coordinates outside of the ball or the half-space."
            )
        time, expected = (
            t.broadcast_to(bad.shape)[bad][0].item() for t in _time_parts(value, self.c)
        )
        wanted, got = told_apart(expected, time)
        raise ValueError(
            f"Expected {what} (time part {wanted}); got {got}. "
            "To make a point of its space part, use hw.lorentz.lift."
        )

    def __repr__(self) -> str:
        return f"Hyperboloid(c={self.c})"


def _time_parts(value: Tensor, c: Curvature) -> tuple[Tensor, Tensor]:
    """The stored time part and the one that the space part determines."""
    x = wide(value)
    return x[..., 0], lorentz.lift(x[..., 1:], c=c)[..., 0]


def to_be_within_the_support(value: Tensor) -> str:
    """How torch's own laws name a value that they refuse."""
    return f"value argument (Tensor of shape {tuple(value.shape)}) to be within the support"


def told_apart(a: float, b: float) -> tuple[float, float]:
    """Two numbers in three digits, or in as many as it takes to tell them apart.

    >>> told_apart(4.7312, 4.7389)
    (4.73, 4.74)
    >>> told_apart(4.7312, 4.7319)
    (4.731, 4.732)
    """
    for digits in range(3, 17):
        short = float(f"{a:.{digits}g}"), float(f"{b:.{digits}g}")
        if short[0] != short[1]:
            return short
    return a, b


def overflow_radius(dtype: torch.dtype) -> float:
    """The radius, in units of ``1/√c``, at which coordinates in ``dtype`` overflow."""
    return torch.log(torch.tensor(torch.finfo(dtype).max, dtype=torch.float64)).item()


def wider(dtype: torch.dtype) -> str:
    """The advice to use float64, for those who do not yet."""
    return "" if dtype == torch.float64 else "float64 or "


hyperboloid = Hyperboloid()
"""The hyperboloid of curvature −1."""


class ExpOrigin(Transform):
    """``exp₀ : R^n → H^n``, with the Riemannian log-determinant ``(n−1)·log sinhc(√c r)``.

    >>> biject_to(hyperboloid)(torch.zeros(2))
    tensor([1., 0., 0.])
    """

    domain = constraints.real_vector
    bijective = True

    def __init__(self, c: Curvature = 1.0, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.c = c
        self.codomain = Hyperboloid(c)

    def with_cache(self, cache_size: int = 1) -> "ExpOrigin":
        return ExpOrigin(self.c, cache_size=cache_size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExpOrigin):
            return False
        ours, theirs = (torch.as_tensor(c).double().cpu() for c in (self.c, other.c))
        return torch.equal(ours, theirs)

    def __repr__(self) -> str:
        return f"ExpOrigin(c={self.c})"

    def _call(self, x: Tensor) -> Tensor:
        return lorentz.exp0(x, c=self.c)

    def _inverse(self, y: Tensor) -> Tensor:
        return lorentz.log0(y, c=self.c)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (x.shape[-1] - 1) * log_sinhc_sqrt(self.c * squared_norm(x))

    def forward_shape(self, shape: torch.Size) -> torch.Size:
        return torch.Size((*shape[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: torch.Size) -> torch.Size:
        return torch.Size((*shape[:-1], shape[-1] - 1))


@biject_to.register(Hyperboloid)
@transform_to.register(Hyperboloid)
def _exp_origin(constraint: Hyperboloid) -> ExpOrigin:
    return ExpOrigin(constraint.c)
