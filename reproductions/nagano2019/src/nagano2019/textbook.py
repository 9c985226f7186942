"""``G(μ, Σ)`` composed from the paper's formulas as printed, as a yardstick for accuracy and speed.

Correct on paper, and what most libraries do: ``α = −⟨μ,z⟩``, ``arccosh``, ``z − αμ``, transport,
each a subtraction of numbers of size ``e^{2R}``. It has the guards that a careful reader of the
paper would add, ``α`` kept above 1 and a ``log sinh`` that does not overflow, so that what is wrong
with it is the cancellation alone. Nothing else in hyperwrap uses it.
"""

from math import log, pi

import torch
from torch import Tensor

from hyperwrap.lorentz import inner

__all__ = ["TextbookWrappedNormal"]


class TextbookWrappedNormal:
    """Algorithms 1 and 2 with a diagonal ``Σ``, curvature −1."""

    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        self.loc, self.scale = loc, scale
        self.origin = torch.zeros_like(loc)
        self.origin[..., 0] = 1

    def rsample(self) -> Tensor:
        v = torch.randn_like(self.scale) * self.scale
        u = _transport(self.origin, self.loc, torch.cat([torch.zeros_like(v[..., :1]), v], -1))
        r = inner(u, u).sqrt().unsqueeze(-1)
        return r.cosh() * self.loc + r.sinh() * u / r

    def log_prob(self, z: Tensor) -> Tensor:
        alpha = -inner(self.loc, z).unsqueeze(-1).clamp_max(-1 - torch.finfo(z.dtype).eps)
        r = torch.acosh(alpha)
        u = r / torch.sqrt(alpha**2 - 1) * (z - alpha * self.loc)
        v = _transport(self.loc, self.origin, u)[..., 1:]
        log_sinhc = (r + torch.log1p(-torch.exp(-2 * r)) - torch.log(2 * r)).squeeze(-1)
        gaussian = -0.5 * (v / self.scale).square() - self.scale.log() - 0.5 * log(2 * pi)
        return gaussian.sum(-1) - (v.shape[-1] - 1) * log_sinhc


def _transport(x: Tensor, y: Tensor, u: Tensor) -> Tensor:
    """Equation 3."""
    alpha = -inner(x, y).unsqueeze(-1)
    return u + inner(y - alpha * x, u).unsqueeze(-1) / (alpha + 1) * (x + y)
