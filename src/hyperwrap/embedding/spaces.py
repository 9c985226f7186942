r"""Where nodes live, and how a draw from one node looks from another, with derivatives written out.

A node has a centre, held as the tangent vector ``h`` at the origin (``μ = exp₀(h)``), and a
*frame* there: the standard one of the origin, carried along the ray. Everything here is said in
frames. A draw from node ``a`` is ``t = σ_a·ε`` in the frame of ``a``; seen from node ``c`` it is
``w``, the space part of ``L(−μ_c)·L(μ_a)·exp₀(t)``, where ``L`` are boosts; then
``v = asinh|w|·w/|w|`` is what `lorentz.unwrap` gives, and ``log q_c`` is a function of ``v``.
Gradients of a centre are in its frame too: ``ḡ = ∂f/∂δ`` for ``μ ← wrap(μ, δ)``, so they and the
steps taken with them are of ordinary size at any radius. No ambient coordinate, of size ``e^ρ``, is
ever formed: a chain of derivatives through those would lose ``e^{2ρ}`` of its digits.

**Hyperbolic.** With radii ``ρ``, directions ``m`` and ``u = m_a − m_c`` (a difference of nearby
numbers, hence exact), ``Δ = ρ_a − ρ_c``, and ``y = (y₀, y⃗) = exp₀(t)``, ``y₁ = ⟨m_a, y⃗⟩``:

    α = sinh ρ_a·y₀ + (cosh ρ_a − 1)·y₁
    κ = ⟨u, y⃗⟩ + ½|u|²·α
    β = sinh Δ·y₀ + (cosh Δ − 1)·y₁ − (cosh ρ_c − 1)·κ
    w = y⃗ + α·u + β·m_c        w₀ = √(1+|w|²)

Moving the centre of ``c`` by ``δ`` in its frame boosts ``w`` by ``−δ`` and turns the frame by the
area the ray sweeps: ``dw = −w₀δ + tanh(ρ_c/2)·(⟨δ,w⟩m_c − ⟨m_c,w⟩δ)``; so, with ``G = ∂f/∂w``,

    c̄ = −w₀G + tanh(ρ_c/2)·(⟨G,m_c⟩w − ⟨w,m_c⟩G)
    ω  = ⟨G,u⟩ − ½|u|²(cosh ρ_c − 1)·⟨G,m_c⟩
    ȳ₀ = sinh ρ_a·ω + sinh Δ·⟨G,m_c⟩
    ȳ  = G + [(cosh ρ_a − 1)·ω + (cosh Δ − 1)·⟨G,m_c⟩]·m_a − (cosh ρ_c − 1)⟨G,m_c⟩·u

and, summed over all that look at the draw,

    ā = y₀ȳ + ȳ₀y⃗ + tanh(ρ_a/2)·(y₁ȳ − ⟨ȳ,m_a⟩y⃗)
    t̄ = S·ȳ + (2S'⟨ȳ,t⟩ + S·ȳ₀)·t        S = sinh|t|/|t|, S' = dS/d|t|²

All of this is linear in ``y``. A draw from a wide node goes far, ``|t| = 40`` say, and ``y`` would
overflow float32; so ``y`` is held times ``e^{−λ}``, ``λ = |t| + ρ_a``, and ``w`` and ``w₀`` besides
over ``X``, the sum of the sizes of the terms of ``w₀ = cosh Δ·y₀ + sinh Δ·y₁ + sinh ρ_c·κ``, which
is no less than ``w₀``: ``|w|`` is at most 1, its square no less than rounding leaves of it. ``ȳ``
and ``G`` are held times the inverse factors; the gradients of centres do not notice. So float32
serves radii up to 40 and draws that go 60 far, however far apart two nodes are.

**Euclidean.** ``w = h_a + t − h_c``; every derivative is ``±G``.

Shapes: coordinates come first, ``(n, ...)``, so that each is a contiguous plane; the rest
broadcasts, anchors ``(..., e, 1)`` against candidates ``(..., 1, k)``.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from hyperwrap.special import horner

__all__ = ["SPACES", "Centres", "Draw", "Space", "View"]


def dot(a: Tensor, b: Tensor) -> Tensor:
    """``⟨a, b⟩`` over the first dimension: ``(n, ...) → (...)``."""
    return (a * b).sum(0)


def taken(x: Tensor, nodes: Tensor) -> Tensor:
    """``x[..., nodes]``, a few times as fast."""
    return x.index_select(-1, nodes.flatten()).unflatten(-1, nodes.shape)


class Centres(NamedTuple):
    """Centres of nodes ``(n, ...)`` and functions of their radii ``(...)``."""

    m: Tensor
    """Directions; in Euclidean space the centres themselves."""
    rho: Tensor
    sinh: Tensor
    cosh_1: Tensor
    """``cosh ρ − 1``."""
    tanh: Tensor
    """``tanh(ρ/2)``."""

    def at(self, nodes: Tensor) -> "Centres":
        """Those of some nodes, ``(n, *nodes.shape)``."""
        return Centres(*(taken(x, nodes) for x in self))


class Draw(NamedTuple):
    """A draw ``t`` from nodes with given centres; ``e^{−λ}·exp₀(t) = (y₀, y)`` in their frames."""

    centre: Centres
    t: Tensor
    exponent: Tensor
    """``λ``, 0 in Euclidean space."""
    y: Tensor
    y0: Tensor
    y1: Tensor
    alpha: Tensor


class View(NamedTuple):
    """A draw as it looks from other nodes: ``w (n, ...)`` in their frames, times ``e^{−λ}/X``."""

    draw: Draw
    centre: Centres
    w: Tensor
    w0: Tensor
    u: Tensor
    half_u2: Tensor
    sinh_delta: Tensor
    cosh_delta_1: Tensor
    inverse: Tensor
    """``1/X``."""
    exponent: Tensor
    """``λ + log X``."""


class Radial(NamedTuple):
    """Functions of ``r``, the distance of a draw from the centre it is looked at from.

    ``v = φ·w``; ``log_det`` is ``log(sinh r / r)``, the volume's growth in each of ``n − 1``
    directions; ``slope`` is its derivative in ``r`` over ``r·w₀``.
    """

    r: Tensor
    phi: Tensor
    log_det: Tensor
    slope: Tensor


class Space(ABC):
    """What `Hyperbolic` and `Euclidean` have in common."""

    @abstractmethod
    def centres(self, h: Tensor) -> Centres:
        """From tangent vectors at the origin ``(n, ...)``."""

    @abstractmethod
    def draw(self, centre: Centres, t: Tensor) -> Draw: ...

    @abstractmethod
    def look(self, draw: Draw, centre: Centres) -> View:
        """The draw in the frames of nodes with the given centres."""

    @abstractmethod
    def radial(self, view: View) -> Radial: ...

    @abstractmethod
    def distance_slope(self, view: View) -> Tensor:
        """``∂r/∂w (n, ...)``, 0 where the distance ``r`` is."""

    @abstractmethod
    def pull_view(self, view: View, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """From ``G = ∂f/∂w``: the gradients ``c̄``, ``ȳ₀`` and ``ȳ``."""

    @abstractmethod
    def pull_draw(self, draw: Draw, g0: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """From ``ȳ₀`` and ``ȳ``: the gradients ``ā`` and ``t̄``."""

    @abstractmethod
    def move(self, h: Tensor, delta: Tensor) -> Tensor:
        """Tangent vectors ``(N, n)`` of centres moved by ``δ (N, n)`` in their frames."""

    @abstractmethod
    def to_tangent(self, h: Tensor, g: Tensor) -> Tensor:
        """``∂f/∂h (N, n)`` from a gradient ``(N, n)`` in the frames."""


class Hyperbolic(Space):
    """``H^n`` of curvature −1."""

    def centres(self, h: Tensor) -> Centres:
        rho = dot(h, h).sqrt()
        half = torch.sinh(rho / 2)
        m = h / rho.clamp_min(_tiny(h))
        return Centres(m, rho, torch.sinh(rho), 2 * half * half, torch.tanh(rho / 2))

    def draw(self, centre: Centres, t: Tensor) -> Draw:
        length, shrink = dot(t, t).sqrt(), torch.exp(-centre.rho)
        y, y0 = shrink * _sinhc(length) * t, shrink * (1 + torch.exp(-2 * length)) / 2
        y1 = dot(centre.m, y)
        alpha = centre.sinh * y0 + centre.cosh_1 * y1
        return Draw(centre, t, length + centre.rho, y, y0, y1, alpha)

    def look(self, draw: Draw, centre: Centres) -> View:
        delta = draw.centre.rho - centre.rho
        sinh_delta, half = torch.sinh(delta), torch.sinh(delta / 2)
        cosh_delta_1 = 2 * half * half
        u = draw.centre.m - centre.m
        half_u2 = dot(u, u) / 2
        kappa = torch.addcmul(dot(u, draw.y), half_u2, draw.alpha)
        beta = sinh_delta * draw.y0 + cosh_delta_1 * draw.y1 - centre.cosh_1 * kappa
        size = draw.y0 * (1 + cosh_delta_1) + (sinh_delta * draw.y1).abs()
        size = torch.addcmul(size, centre.sinh, kappa.abs())
        inverse, exponent = 1 / size, draw.exponent + size.log()
        w = torch.addcmul(inverse * draw.y, inverse * draw.alpha, u)
        w = torch.addcmul(w, inverse * beta, centre.m)
        w0 = (torch.exp(-2 * exponent) + _length(w).square()).sqrt()
        return View(draw, centre, w, w0, u, half_u2, sinh_delta, cosh_delta_1, inverse, exponent)

    def radial(self, view: View) -> Radial:
        length = _length(view.w)
        # asinh of what length stands for, without forming that
        exponent = view.exponent
        one = torch.exp(-exponent)
        near = torch.log1p((length + length * length / (one + view.w0)) / one)
        r = torch.where(length < one, near, torch.log(length + view.w0) + exponent)
        log_slope = torch.where(
            r < 0.2, horner(_LOG_SLOPE_SERIES, r * r), (view.w0 / length - 1 / r) / r
        )
        log_det = torch.log(length / r) + exponent
        return Radial(r, r / length, log_det, log_slope / view.w0)

    def distance_slope(self, view: View) -> Tensor:
        return view.w / _length(view.w) / view.w0

    def pull_view(self, view: View, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        c, a, w, u = view.centre, view.draw.centre, view.w, view.u
        g_m, g_u = dot(g, c.m), dot(g, u)
        grad_c = torch.addcmul(-(view.w0 + c.tanh * dot(w, c.m)) * g, c.tanh * g_m, w)
        # 1/X first: it takes the size from products of two factors e^ρ
        g_m, g_u = view.inverse * g_m, view.inverse * g_u
        omega = g_u - view.half_u2 * c.cosh_1 * g_m
        along = a.cosh_1 * omega + view.cosh_delta_1 * g_m
        grad_y = torch.addcmul(torch.addcmul(view.inverse * g, along, a.m), -c.cosh_1 * g_m, u)
        return grad_c, a.sinh * omega + view.sinh_delta * g_m, grad_y

    def pull_draw(self, draw: Draw, g0: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        a, t, y, y0, y1 = draw.centre, draw.t, draw.y, draw.y0, draw.y1
        grad_a = (y0 + a.tanh * y1) * g + (g0 - a.tanh * dot(g, a.m)) * y
        length, shrink = dot(t, t).sqrt(), torch.exp(-a.rho)
        sinhc, slope = shrink * _sinhc(length), shrink * _sinhc_slope(length)
        return grad_a, sinhc * g + (2 * slope * dot(g, t) + sinhc * g0) * t

    def move(self, h: Tensor, delta: Tensor) -> Tensor:
        """In float64: squares of coordinates of size ``e^ρ`` overflow float32 at radius 44."""
        draw = self.draw(self.centres(h.T.double()), delta.T.double())
        z = torch.addcmul(draw.y, draw.alpha, draw.centre.m) * torch.exp(draw.exponent)
        length = dot(z, z).sqrt().clamp_min(_tiny(z))
        return (torch.asinh(length) / length * z).T.to(h.dtype)

    def to_tangent(self, h: Tensor, g: Tensor) -> Tensor:
        rho = (h * h).sum(-1, keepdim=True).sqrt()
        m = h / rho.clamp_min(_tiny(h))
        radial = (g * m).sum(-1, keepdim=True) * m
        return radial + torch.exp(rho) * _sinhc(rho) * (g - radial)


class Euclidean(Space):
    """``R^n``."""

    def centres(self, h: Tensor) -> Centres:
        zero = torch.zeros_like(h[0])
        return Centres(h, dot(h, h).sqrt(), zero, zero, zero)

    def draw(self, centre: Centres, t: Tensor) -> Draw:
        zero = torch.zeros_like(t[0])
        return Draw(centre, t, zero, centre.m + t, zero, zero, zero)

    def look(self, draw: Draw, centre: Centres) -> View:
        w = draw.y - centre.m
        none = w.new_zeros(())
        return View(draw, centre, w, *(none,) * 7)

    def radial(self, view: View) -> Radial:
        r = dot(view.w, view.w).sqrt()
        return Radial(r, torch.ones_like(r), torch.zeros_like(r), torch.zeros_like(r))

    def distance_slope(self, view: View) -> Tensor:
        return view.w / dot(view.w, view.w).sqrt().clamp_min(_tiny(view.w))

    def pull_view(self, view: View, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return -g, torch.zeros_like(g[0]), g

    def pull_draw(self, draw: Draw, g0: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        return g, g

    def move(self, h: Tensor, delta: Tensor) -> Tensor:
        return h + delta

    def to_tangent(self, h: Tensor, g: Tensor) -> Tensor:
        return g


SPACES: dict[str, Space] = {"hyperbolic": Hyperbolic(), "euclidean": Euclidean()}


_LOG_SLOPE_SERIES = [1 / 3, -1 / 45, 2 / 945, -1 / 4725]


def _length(w: Tensor) -> Tensor:
    """``|w|`` of a view, but no less than what is far below its rounding.

    A draw that comes back from afar and lands on a centre leaves nothing but rounding of its
    coordinates, and that may be 0.
    """
    return dot(w, w).sqrt().clamp_min(torch.finfo(w.dtype).eps ** 2)


def _tiny(x: Tensor) -> float:
    """Stands for a length of 0: what is divided by it is 0 as well."""
    return torch.finfo(x.dtype).tiny ** 0.5


def _sinhc(r: Tensor) -> Tensor:
    """``e^{−r}·sinh(r)/r``."""
    r = r.clamp_min(_tiny(r))
    return -torch.expm1(-2 * r) / (2 * r)


def _sinhc_slope(r: Tensor) -> Tensor:
    """``e^{−r}`` times the derivative of ``sinh(r)/r`` in ``r²``, ``(cosh r − sinh(r)/r)/2r²``."""
    q = r * r
    near = torch.exp(-r) * (1 + q / 10 * (1 + q / 28 * (1 + q / 54 * (1 + q / 88)))) / 6
    far = ((1 + torch.exp(-2 * r)) / 2 - _sinhc(r)) / (2 * q.clamp_min(0.1))
    return torch.where(q < 0.5, near, far)
