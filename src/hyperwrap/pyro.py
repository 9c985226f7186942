r"""The laws as distributions of Pyro: for `pyro.sample`, plates, NUTS, SVI and enumeration.

Each class is the law of that name in `hyperwrap`, with Pyro's methods. All densities are with
respect to the Riemannian volume. The map from ``R^n`` that samplers and automatic guides use,
`exp0`, has the matching log-determinant, so what they find does not depend on the coordinates.

**Latent points at a latent curvature.** Pyro looks at the map from ``R^n`` once, at the first value
of the curvature, and would go on with that. So a latent law whose ``c`` is a tensor is refused.
Make the tangent vector the latent variable instead:

    c = pyro.sample("c", dist.LogNormal(0.0, 0.5))
    v = pyro.sample("v", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    z = pyro.deterministic("z", hw.lorentz.exp0(v, c=c))

which is the same as ``z ~ WrappedNormal(origin, 1, c=c)``. Observed laws take any ``c``.
"""

# Pyro promises that `expand` returns its own class; ours return laws of their own kind.
# pyright: reportIncompatibleMethodOverride=false

from typing import Any

import torch
from torch import Size, Tensor
from torch.distributions import constraints

from hyperwrap import distributions
from hyperwrap.constraints import Hyperboloid
from hyperwrap.errors import UserError, needs_extra

with needs_extra("pyro"):
    from pyro.distributions.torch_distribution import TorchDistributionMixin

__all__ = [
    "RiemannianNormal",
    "UniformBall",
    "Wrapped",
    "WrappedCauchy",
    "WrappedLaplace",
    "WrappedNormal",
    "WrappedNormalMixture",
    "WrappedStudentT",
]


class _OnHyperboloid:
    """What Pyro asks of a law, beside what its mixin has."""

    c: Any
    arg_constraints: dict[str, constraints.Constraint]
    __call__ = TorchDistributionMixin.__call__

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> Hyperboloid:  # pyright: ignore
        """The hyperboloid of curvature ``−c``, for a curvature that stays what it is."""
        if isinstance(self.c, Tensor):
            raise UserError(
                "Expected a latent law with `c` as a float; got a tensor. Pyro would fix the map "
                "from R^n at the first curvature. Make the tangent vector the latent variable: "
                "see hyperwrap.pyro."
            )
        return Hyperboloid(self.c)

    @classmethod
    def infer_shapes(cls, **arg_shapes: Size) -> tuple[Size, Size]:
        """Batch and event shape of a law with parameters of these shapes."""
        centre = arg_shapes.get("loc", arg_shapes.get("tangent"))
        if not centre:
            raise UserError("Expected the shape of `loc` or `tangent`, a vector; got none.")
        event = Size((centre[-1] + ("loc" not in arg_shapes),))
        batches = (cls._batch(name, shape) for name, shape in arg_shapes.items())
        return torch.broadcast_shapes(*batches), event

    @classmethod
    def _batch(cls, name: str, shape: Size) -> Size:
        known = {"tangent": 1, **{k: c.event_dim for k, c in cls.arg_constraints.items()}}
        return Size(shape[: max(len(shape) - known.get(name, 0), 0)])


class WrappedNormal(_OnHyperboloid, distributions.WrappedNormal, TorchDistributionMixin):
    """`hw.WrappedNormal` in Pyro.

    >>> from hyperwrap.pyro import WrappedNormal
    >>> WrappedNormal(hw.lorentz.origin(2), 1.0)().shape
    torch.Size([3])
    >>> WrappedNormal.infer_shapes(loc=torch.Size((7, 3)), scale=torch.Size((2,)))
    (torch.Size([7]), torch.Size([3]))
    """


class RiemannianNormal(_OnHyperboloid, distributions.RiemannianNormal, TorchDistributionMixin):
    """`hw.RiemannianNormal` in Pyro."""


class UniformBall(_OnHyperboloid, distributions.UniformBall, TorchDistributionMixin):
    """`hw.UniformBall` in Pyro."""


class WrappedLaplace(_OnHyperboloid, distributions.WrappedLaplace, TorchDistributionMixin):
    """`hw.WrappedLaplace` in Pyro."""


class WrappedStudentT(_OnHyperboloid, distributions.WrappedStudentT, TorchDistributionMixin):
    """`hw.WrappedStudentT` in Pyro."""


class WrappedCauchy(_OnHyperboloid, distributions.WrappedCauchy, TorchDistributionMixin):
    """`hw.WrappedCauchy` in Pyro."""


class Wrapped(_OnHyperboloid, distributions.Wrapped, TorchDistributionMixin):
    """`hw.Wrapped` in Pyro."""


class WrappedNormalMixture(distributions.WrappedNormalMixture, TorchDistributionMixin):
    """`hw.WrappedNormalMixture` in Pyro; its components may be of either module."""

    __call__ = TorchDistributionMixin.__call__
