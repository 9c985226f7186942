r"""How two centres lie to each other: their distance, the direction, and the turn of the frames.

A law at ``μ = exp₀(h)`` measures tangent vectors in the frame of the origin, carried along the ray
to ``μ``. Carried on from ``p`` to ``q`` along the geodesic between them, the frame of ``p`` comes
to lie turned against that of ``q``, by the area of the triangle of both with the origin.

With ``ρ = |h|``, the half-length vectors ``a = sinh(ρ_p/2)·ĥ_p``, ``b = sinh(ρ_q/2)·ĥ_q`` and
``α = √(1+|a|²)``, ``β = √(1+|b|²)``, all follows from three things that are smooth in ``h``:

    N = βa − αb        s = αβ − ⟨a,b⟩        W = abᵀ − baᵀ

    sinh(d/2) = |N|,   C = cosh(d/2),   R = I + 2(sW + W²)/C²,   √R = I + W/C + W²/(C(s + C))

``−N/|N|`` points from ``p`` to ``q``, half turned: it is ``√R·e``, where ``e`` is the direction in
the frame of ``p``; in that of ``q`` it is ``R·e``. Far out the differences are of size ``e^ρ``
beside results of size 1, so there they are taken of the directions, ``u = ĥ_p − ĥ_q``, and of the
radii: exact at any radius.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hyperwrap.special import cosh_sqrt, dot, norm, sinhc_sqrt, squared_norm

__all__ = ["Offset", "offset"]


class Offset(NamedTuple):
    """Where the centre of ``q`` is, seen from that of ``p``, in curvature −1."""

    distance: Tensor
    """``d``, ``(...)``; its derivative at 0 is taken to be 0."""
    ahead: Tensor
    """``e``, the direction to ``q`` in the frame of ``p``, ``(..., n)``; any where ``d = 0``."""
    plane: Tensor
    """``U``, the two vectors between which the frame turns, ``(..., n, 2)``."""
    turn: Tensor
    """``K`` of ``R = I + UKUᵀ``, ``(..., 2, 2)``."""

    def carry(self, v: Tensor) -> Tensor:
        """``R·v``: vectors ``(..., m, n)`` in the frame of ``p``, carried to ``q``."""
        return _turned(v, self.plane, self.turn)


def offset(h_p: Tensor, h_q: Tensor) -> Offset:
    """The offset of ``exp₀(h_q)`` from ``exp₀(h_p)``, both ``(..., n)`` in float64."""
    h_p, h_q = torch.broadcast_tensors(h_p, h_q)
    b, w, s, step = _halves(h_p, h_q)
    plane = torch.stack((w, b), -1)
    swap = h_p.new_tensor([[0.0, 1.0], [-1.0, 0.0]])  # W = U·swap·Uᵀ
    square = swap @ (plane.mT @ plane) @ swap
    length, s = norm(step), s.unsqueeze(-1)
    cosh = torch.sqrt(1 + dot(step, step)).unsqueeze(-1)
    half = swap / cosh + square / (cosh * (s + cosh))
    ahead = _turned(_direction(step, length).unsqueeze(-2), plane, half.mT).squeeze(-2)
    return Offset(2 * torch.asinh(length), ahead, plane, 2 * (s * swap + square) / cosh**2)


def _turned(v: Tensor, plane: Tensor, turn: Tensor) -> Tensor:
    return v + (v @ plane) @ turn.mT @ plane.mT


def _direction(step: Tensor, length: Tensor) -> Tensor:
    """``−N/|N|``, or the first axis where that is 0/0."""
    here = (length == 0).unsqueeze(-1)
    first = torch.eye(1, step.shape[-1], dtype=step.dtype, device=step.device)[0]
    return torch.where(here, first, -step / torch.where(here, 1.0, length.unsqueeze(-1)))


Halves = tuple[Tensor, Tensor, Tensor, Tensor]


def _halves(h_p: Tensor, h_q: Tensor) -> Halves:
    """``b``, ``a``, ``s`` and ``N``."""
    both = (dot(h_p, h_p) > 1) & (dot(h_q, h_q) > 1)
    far = _far(*(torch.where(both, h, 1.0) for h in (h_p, h_q)))
    near = _near(*(torch.where(both, 0.0, h) for h in (h_p, h_q)))
    b, a, s, step = (torch.where(both, x, y) for x, y in zip(far, near, strict=True))
    return b, a, s, step


def _near(h_p: Tensor, h_q: Tensor) -> Halves:
    (a, alpha), (b, beta) = (_half(squared_norm(h).unsqueeze(-1) / 4, h) for h in (h_p, h_q))
    return b, a, alpha * beta - dot(a, b), beta * a - alpha * b


def _half(quarter: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    return sinhc_sqrt(quarter) * h / 2, cosh_sqrt(quarter)


def _far(h_p: Tensor, h_q: Tensor) -> Halves:
    """The same with ``sinh(ρ_p/2)·u`` in place of ``a``, which leaves ``W`` as it is."""
    rho_p, rho_q = (dot(h, h).sqrt() for h in (h_p, h_q))
    m_q = h_q / rho_q
    u, delta = h_p / rho_p - m_q, (rho_p - rho_q) / 2
    sinh_p, sinh_q = torch.sinh(rho_p / 2), torch.sinh(rho_q / 2)
    s = torch.cosh(delta) + sinh_p * sinh_q * dot(u, u) / 2
    step = torch.cosh(rho_q / 2) * sinh_p * u + torch.sinh(delta) * m_q
    return sinh_q * m_q, sinh_p * u, s, step
