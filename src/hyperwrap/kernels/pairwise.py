r"""How a draw from one law looks from the centre of another, with the derivatives written out.

A centre ``μ = exp₀(h)`` is held as ``h``, with a *frame*: the standard one of the origin, carried
along the ray. A draw from law ``a`` is ``t = σ_a·ε`` in the frame of ``a``. Seen from law ``c`` it
is ``w``, the space part of ``L(−μ_c)·L(μ_a)·exp₀(t)``, where ``L`` are boosts; then ``v =
asinh|w|·w/|w|`` is what `lorentz.unwrap` gives, and ``log q_c`` is a function of ``v``. No ambient
coordinate, of size ``e^ρ``, is ever formed: a chain of derivatives through those would lose
``e^{2ρ}`` of its digits.

With radii ``ρ``, directions ``m`` and ``u = m_a − m_c`` (a difference of nearby numbers, hence
exact), ``Δ = ρ_a − ρ_c``, and ``y = (y₀, y⃗) = exp₀(t)``, ``y₁ = ⟨m_a, y⃗⟩``:

    α = sinh ρ_a·y₀ + (cosh ρ_a − 1)·y₁
    κ = ⟨u, y⃗⟩ + ½|u|²·α
    β = sinh Δ·y₀ + (cosh Δ − 1)·y₁ − (cosh ρ_c − 1)·κ
    w = y⃗ + α·u + β·m_c        w₀ = √(1+|w|²)

The score is, with ``r = asinh|w|``, ``φ = r/|w|``, ``ℓ = log(sinh r / r)``, ``s = (dℓ/dr)/(r·w₀)``
and ``Q = Σ wᵢ²/σᵢ²``:

    f = −½φ²Q − Σ log σᵢ − (n−1)·ℓ        (less ½n·log 2π)
    G = ∂f/∂w = −φ²·w/σ² + φ·s·(φ²Q − (n−1))·w        ∂f/∂log σᵢ = φ²wᵢ²/σᵢ² − 1

Moving the centre of ``c`` by ``δ`` in its frame boosts ``w`` by ``−δ`` and turns the frame by the
area the ray sweeps: ``dw = −w₀δ + tanh(ρ_c/2)·(⟨δ,w⟩m_c − ⟨m_c,w⟩δ)``; so

    c̄ = −w₀G + tanh(ρ_c/2)·(⟨G,m_c⟩w − ⟨w,m_c⟩G)
    ω  = ⟨G,u⟩ − ½|u|²(cosh ρ_c − 1)·⟨G,m_c⟩
    ȳ₀ = sinh ρ_a·ω + sinh Δ·⟨G,m_c⟩
    ȳ  = G + [(cosh ρ_a − 1)·ω + (cosh Δ − 1)·⟨G,m_c⟩]·m_a − (cosh ρ_c − 1)⟨G,m_c⟩·u

and, summed over all that look at the draw,

    ā = y₀ȳ + ȳ₀y⃗ + tanh(ρ_a/2)·(y₁ȳ − ⟨ȳ,m_a⟩y⃗)
    t̄ = S·ȳ + (2S'⟨ȳ,t⟩ + S·ȳ₀)·t        S = sinh|t|/|t|, S' = dS/d|t|²

``c̄`` and ``ā`` are gradients in the frames, ``∂f/∂δ`` for ``μ ← wrap(μ, δ)``, of ordinary size at
any radius. `from_frame` turns them into ``∂f/∂h``, whose part across the ray is ``sinh ρ/ρ`` times
as large: its rounding errors swallow the part along the ray beyond radius 20 in float32. So whoever
takes steps in the frames asks for ``c̄`` and ``ā`` themselves: ``in_frames``.

A *radial* law has one ``σ`` along the ray and one across it. Its frame stays with the ray, and
turns by ``coth ρ`` in place of ``tanh(ρ/2)``, ``1/sinh ρ`` more; nothing else changes.

A *point* has no ``σ``: its score is minus the distance, ``f = −r``, ``G = −w/(|w|·w₀)``.

All of this is linear in ``y``. A draw from a wide law goes far, ``|t| = 40`` say, and ``y`` would
overflow float32; so ``y`` is held times ``e^{−λ}``, ``λ = |t| + ρ_a``, and ``w`` and ``w₀`` besides
over ``X``, the sum of the sizes of the terms of ``w₀ = cosh Δ·y₀ + sinh Δ·y₁ + sinh ρ_c·κ``, which
is no less than ``w₀``: ``|w|`` is at most 1, its square no less than rounding leaves of it. ``ȳ``
and ``G`` are held times the inverse factors; the gradients of centres do not notice. So float32
serves radii up to 40 and draws that go 60 far, however far apart two laws are.

Shapes: coordinates come first, ``(n, ...)``, so that each is a contiguous plane; the rest
broadcasts. The GPU kernels of the embedding (`triton_embedding`) fuse the same formulas with the
objective and the optimiser; they are tested against this file, and this file against
`WrappedNormal.log_prob`.
"""

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from hyperwrap.precision import transformed
from hyperwrap.special import horner

__all__ = ["from_frame", "moved", "pairwise_dist", "pairwise_log_prob"]


def pairwise_log_prob(
    h_a: Tensor,
    t: Tensor,
    *seen: tuple[Tensor, Tensor],
    in_frames: bool = False,
    radial: bool = False,
) -> list[Tensor]:
    """``log q_c`` at the draws ``t (n, ...)`` of ``a``, for each of the ``(h_c, σ)`` that see them:
    ``h_c (n, ...)``, ``σ (n or 1, ...)``.

    The results have the broadcast shape ``(...)``, and lack the ``½n·log 2π`` of a density. With
    ``in_frames`` the gradients of ``h_a`` and ``h_c`` are those in the frames of the centres. With
    ``radial`` the scales ``(2, ...)`` are those along and across the ray, and draws and laws turn
    with it. Centres may be in float64 with everything else in float32.
    """
    return _scores((in_frames, radial), h_a, t, *(x for pair in seen for x in pair))


def pairwise_dist(h_a: Tensor, t: Tensor, *seen: Tensor, in_frames: bool = False) -> list[Tensor]:
    """How far the draws ``t`` of ``a`` are from each of the centres; shapes as above."""
    scores = _scores((in_frames, False), h_a, t, *(x for h_c in seen for x in (h_c, None)))
    return [-f for f in scores]


def _scores(how: tuple[bool, bool], h_a: Tensor, t: Tensor, *seen: Tensor | None) -> list[Tensor]:
    if transformed(h_a, t, *(x for x in seen if x is not None)):
        return _plain(how[1], h_a, t, *seen)
    return list(_Pairwise.apply(how, h_a, t, *seen))  # pyright: ignore


def _plain(radial: bool, h_a: Tensor, t: Tensor, *seen: Tensor | None) -> list[Tensor]:
    return [scored.f for _, scored, _ in _looks(radial, h_a, t, *seen)]


def _looks(
    radial: bool, h_a: Tensor, t: Tensor, *seen: Tensor | None
) -> "list[tuple[_View, _Scored, _Spread | None]]":
    draw, found = _draw(_Centre.of(h_a, t.dtype, radial), t), []
    for h_c, scale in zip(seen[::2], seen[1::2], strict=True):
        view = _look(draw, _Centre.of(cast(Tensor, h_c), t.dtype, radial))
        spread = None if scale is None else (_Radial if radial else _Diagonal)(scale, view)
        found.append((view, _scored(view, spread), spread))
    return found


def moved(h: Tensor, delta: Tensor) -> Tensor:
    """Tangent vectors of the centres ``exp₀(h)`` moved by ``δ`` in their frames; both ``(n, ...)``.

    In float64: squares of coordinates of size ``e^ρ`` overflow float32 at radius 44.
    """
    draw = _draw(_Centre.of(h.double(), torch.float64), delta.double())
    z = torch.addcmul(draw.y, draw.alpha, draw.centre.m) * torch.exp(draw.exponent)
    length = _norm(z).clamp_min(_tiny(z))
    return (torch.asinh(length) / length * z).to(h.dtype)


def from_frame(h: Tensor, grad: Tensor) -> Tensor:
    """``∂f/∂h`` from a gradient in the frame of ``exp₀(h)``; both ``(n, ...)``."""
    rho = _norm(h)
    m = h / rho.clamp_min(_tiny(h))
    along = dot(grad, m) * m
    return along + torch.exp(rho) * _sinhc(rho) * (grad - along)


# --- centres, draws, views -----------------------------------------------------------------------


def dot(a: Tensor, b: Tensor) -> Tensor:
    """``⟨a, b⟩`` over the first dimension: ``(n, ...) → (...)``."""
    return (a * b).sum(0)


def _norm(x: Tensor) -> Tensor:
    return dot(x, x).sqrt()


class _Centre(NamedTuple):
    """Directions ``(n, ...)`` of centres and functions of their radii ``(...)``."""

    exact: tuple[Tensor, Tensor]  # m and ρ, in the dtype of h
    m: Tensor
    rho: Tensor
    sinh: Tensor
    cosh_1: Tensor  # cosh ρ − 1
    turn: Tensor  # of the frame

    @classmethod
    def of(cls, h: Tensor, dtype: torch.dtype, radial: bool = False) -> "_Centre":
        length = _norm(h)
        direction = h / length.clamp_min(_tiny(h))
        m, rho = direction.to(dtype), length.to(dtype)
        sinh, half, turn = torch.sinh(rho), torch.sinh(rho / 2), torch.tanh(rho / 2)
        if radial:
            turn = turn + 1 / sinh.clamp_min(_LEAST_SINH)
        return cls((direction, length), m, rho, sinh, 2 * half * half, turn)


class _Draw(NamedTuple):
    """A draw ``t``; ``e^{−λ}·exp₀(t) = (y₀, y)`` in the frame of its centre."""

    centre: _Centre
    t: Tensor
    exponent: Tensor  # λ
    y: Tensor
    y0: Tensor
    y1: Tensor
    alpha: Tensor


def _draw(centre: _Centre, t: Tensor) -> _Draw:
    length, shrink = _norm(t), torch.exp(-centre.rho)
    y, y0 = shrink * _sinhc(length) * t, shrink * (1 + torch.exp(-2 * length)) / 2
    y1 = dot(centre.m, y)
    alpha = centre.sinh * y0 + centre.cosh_1 * y1
    return _Draw(centre, t, length + centre.rho, y, y0, y1, alpha)


class _View(NamedTuple):
    """A draw as it looks from another centre: ``w (n, ...)`` in its frame, times ``e^{−λ}/X``."""

    draw: _Draw
    centre: _Centre
    w: Tensor
    w0: Tensor
    length: Tensor  # |w|
    u: Tensor
    half_u2: Tensor
    sinh_delta: Tensor
    cosh_delta_1: Tensor
    inverse: Tensor  # 1/X
    exponent: Tensor  # λ + log X


def _look(draw: _Draw, centre: _Centre) -> _View:
    (m_a, rho_a), (m_c, rho_c) = draw.centre.exact, centre.exact
    delta, u = (rho_a - rho_c).to(draw.t.dtype), (m_a - m_c).to(draw.t.dtype)
    sinh_delta, half = torch.sinh(delta), torch.sinh(delta / 2)
    cosh_delta_1 = 2 * half * half
    half_u2 = dot(u, u) / 2
    kappa = torch.addcmul(dot(u, draw.y), half_u2, draw.alpha)
    beta = sinh_delta * draw.y0 + cosh_delta_1 * draw.y1 - centre.cosh_1 * kappa
    size = draw.y0 * (1 + cosh_delta_1) + (sinh_delta * draw.y1).abs()
    size = torch.addcmul(size, centre.sinh, kappa.abs())
    inverse, exponent = 1 / size, draw.exponent + size.log()
    w = torch.addcmul(inverse * draw.y, inverse * draw.alpha, u)
    w = torch.addcmul(w, inverse * beta, centre.m)
    # A draw that comes back from afar and lands on a centre leaves nothing but rounding of its
    # coordinates, and that may be 0: so no less than what is far below the rounding.
    length = _norm(w).clamp_min(torch.finfo(w.dtype).eps ** 2)
    w0 = (torch.exp(-2 * exponent) + length.square()).sqrt()
    lengths = (sinh_delta, cosh_delta_1, inverse, exponent)
    return _View(draw, centre, w, w0, length, u, half_u2, *lengths)


# --- scores --------------------------------------------------------------------------------------


class _Scored(NamedTuple):
    """``f``, and ``G = bend·w − square·Σ⁻¹w``; a point has the first part only."""

    f: Tensor
    bend: Tensor
    square: Tensor  # φ²


class _Diagonal:
    """``Σ = diag σ²`` in the frame of a centre."""

    def __init__(self, scale: Tensor, view: _View) -> None:
        self.scale, self.w = scale, view.w
        self.pressed = scale**-2 * view.w
        """``Σ⁻¹w``."""

    def log_det(self) -> Tensor:
        """``½·log det Σ``."""
        return self.scale.log().sum(0) * (len(self.w) / len(self.scale))

    def pull(self, grad: Tensor, square: Tensor) -> Tensor:
        """``∂/∂σ``, from the gradients of ``f`` and of ``−½·Σ⁻¹``'s quadratic form."""
        grad_scale = (square * self.pressed * self.w - grad) / self.scale
        summed = len(self.scale) < len(self.w)
        return _summed(grad_scale.sum(0, True) if summed else grad_scale, self.scale)


class _Radial:
    """Variances ``σ²`` along the ray through a centre and, in all other directions, across it."""

    def __init__(self, scale: Tensor, view: _View) -> None:
        self.scale, self.w = scale, view.w
        self.along = dot(view.w, view.centre.m)
        own = self.along * view.centre.m
        across = view.w - own
        self.across_2 = dot(across, across)
        self.pressed = own / scale[0].square() + across / scale[1].square()
        """``Σ⁻¹w``."""

    def log_det(self) -> Tensor:
        """``½·log det Σ``."""
        along, across = self.scale.log()
        return along + (len(self.w) - 1) * across

    def pull(self, grad: Tensor, square: Tensor) -> Tensor:
        """``∂/∂σ``, from the gradients of ``f`` and of ``−½·Σ⁻¹``'s quadratic form."""
        along, across = self.scale
        grad_along = square * self.along.square() / along.square() - grad
        grad_across = square * self.across_2 / across.square() - (len(self.w) - 1) * grad
        return _summed(torch.stack([grad_along / along, grad_across / across]), self.scale)


_Spread = _Diagonal | _Radial


def _scored(view: _View, spread: _Spread | None) -> _Scored:
    length, exponent, r = view.length, view.exponent, _radius(view)
    if spread is None:
        return _Scored(-r, -1 / (length * view.w0), length)
    n, phi = len(view.w), r / length
    log_slope = torch.where(
        r < 0.2, horner(_LOG_SLOPE_SERIES, r * r), (view.w0 / length - 1 / r) / r
    )
    square = phi.square()
    quadratic = dot(view.w, spread.pressed) * square
    f = -0.5 * quadratic - spread.log_det() - (n - 1) * (torch.log(length / r) + exponent)
    return _Scored(f, phi * log_slope / view.w0 * (quadratic - (n - 1)), square)


def _radius(view: _View) -> Tensor:
    """``asinh`` of what the length stands for, without forming that."""
    length, one = view.length, torch.exp(-view.exponent)
    near = torch.log1p((length + length * length / (one + view.w0)) / one)
    return torch.where(length < one, near, torch.log(length + view.w0) + view.exponent)


_LOG_SLOPE_SERIES = [1 / 3, -1 / 45, 2 / 945, -1 / 4725]


class _Pairwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, how: tuple[bool, bool], h_a: Tensor, t: Tensor, *seen: Tensor | None
    ) -> tuple[Tensor, ...]:
        # Not by save_for_backward: views are nothing but functions of the inputs, and many.
        ctx.save_for_backward(h_a, t, *seen)
        (ctx.in_frames, ctx.radial), looks = how, _looks(how[1], h_a, t, *seen)
        # Without the results: those know their function, and would keep it alive.
        ctx.looks = [(view, scored._replace(f=view.w0), spread) for view, scored, spread in looks]
        return tuple(scored.f for _, scored, _ in looks)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        h_a, t, *seen = ctx.saved_tensors
        if torch.is_grad_enabled() and not ctx.in_frames:
            return None, *_twice_differentiable(ctx.radial, (h_a, t, *seen), grads)
        draw = ctx.looks[0][0].draw
        g0, g, found = torch.zeros_like(draw.y0), torch.zeros_like(draw.y), []
        for (view, scored, spread), h_c, grad in zip(ctx.looks, seen[::2], grads, strict=True):
            along_w, grad_scale = _pull_score(view, scored, spread, grad)
            grad_c, from_0, from_y = _pull_view(view, along_w)
            g0 += _summed(from_0, g0)
            g += _summed(from_y, g)
            found += [_summed(grad_c, h_c), grad_scale]
        grad_a, grad_t = _pull_draw(draw, g0, g)
        centres = [_summed(grad_a, h_a), *found[::2]]
        if not ctx.in_frames:
            centres = [from_frame(h, x) for h, x in zip((h_a, *seen[::2]), centres, strict=True)]
        found[::2] = centres[1:]
        return None, centres[0], _summed(grad_t, t), *found


def _summed(x: Tensor, like: Tensor) -> Tensor:
    """Summed over what was broadcast."""
    return x.sum_to_size(like.shape)


def _twice_differentiable(
    radial: bool, inputs: tuple[Tensor | None, ...], grads: tuple[Tensor, ...]
) -> list[Tensor | None]:
    """The gradient of the plain formula, itself differentiable."""
    h_a, t, *seen = inputs
    given = [x for x in inputs if x is not None]
    f = _plain(radial, cast(Tensor, h_a), cast(Tensor, t), *seen)
    found = iter(torch.autograd.grad(f, given, grads, create_graph=True, materialize_grads=True))
    return [None if x is None else next(found) for x in inputs]


def _pull_score(
    view: _View, scored: _Scored, spread: _Spread | None, grad: Tensor
) -> tuple[Tensor, Tensor | None]:
    """``∂/∂w (n, ...)``, and ``∂/∂σ`` in the shape of ``σ``."""
    bent = grad * scored.bend * view.w
    if spread is None:
        return bent, None
    square = grad * scored.square
    return torch.addcmul(bent, -square, spread.pressed), spread.pull(grad, square)


def _pull_view(view: _View, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """From ``G``: the gradients ``c̄``, ``ȳ₀`` and ``ȳ``."""
    c, a, w, u = view.centre, view.draw.centre, view.w, view.u
    g_m, g_u = dot(g, c.m), dot(g, u)
    grad_c = torch.addcmul(-(view.w0 + c.turn * dot(w, c.m)) * g, c.turn * g_m, w)
    # 1/X first: it takes the size from products of two factors e^ρ
    g_m, g_u = view.inverse * g_m, view.inverse * g_u
    omega = g_u - view.half_u2 * c.cosh_1 * g_m
    along = a.cosh_1 * omega + view.cosh_delta_1 * g_m
    grad_y = torch.addcmul(torch.addcmul(view.inverse * g, along, a.m), -c.cosh_1 * g_m, u)
    return grad_c, a.sinh * omega + view.sinh_delta * g_m, grad_y


def _pull_draw(draw: _Draw, g0: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """From ``ȳ₀`` and ``ȳ``: the gradients ``ā`` and ``t̄``."""
    a, t, y, y0, y1 = draw.centre, draw.t, draw.y, draw.y0, draw.y1
    grad_a = (y0 + a.turn * y1) * g + (g0 - a.turn * dot(g, a.m)) * y
    length, shrink = _norm(t), torch.exp(-a.rho)
    sinhc, slope = shrink * _sinhc(length), shrink * _sinhc_slope(length)
    return grad_a, sinhc * g + (2 * slope * dot(g, t) + sinhc * g0) * t


# --- functions of a length -----------------------------------------------------------------------


_LEAST_SINH = 1e-6  # at the origin, where no ray has a direction


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
