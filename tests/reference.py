"""The textbook formulas at 100 digits, which every accuracy in these tests is measured against.

Nothing here is clever: the Lorentz product, ``arccosh``, ``z − αμ`` and the transport of the
paper as printed. At radius 40 they cancel 70 digits, so 30 good ones remain.

A vector is a list of mpmath numbers, made without rounding from the floats of a tensor. Points
and tangent vectors come as their *space parts*: the time part of a point is
``√(1/c + |x|²)``, that of a tangent vector ``u`` at ``x`` is ``⟨x, u⟩/x₀``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from mpmath import MPContext
from torch import Tensor

mp: Any = MPContext()
mp.dps = 100

Number = Any  # an mpmath real
Vector = list[Number]
Matrix = list[Vector]
LogDensity = Callable[[Vector], Number]


# --- between tensors and exact numbers ---------------------------------------------------------


def exactly(x: Tensor | float) -> Any:
    """A tensor as nested lists of numbers (a number if it has no dimensions), without rounding."""
    rows: Any = x.detach().double().tolist() if isinstance(x, Tensor) else x
    return [exactly(row) for row in rows] if isinstance(rows, list) else mp.mpf(rows)


def over_rows(f: Callable[..., Any], *tensors: Tensor) -> Tensor:
    """``f`` of the rows of matrices, one call a row; the results rounded to float64."""
    rows = zip(*(exactly(t) for t in tensors), strict=True)
    return as_tensor([f(*row) for row in rows])


def as_tensor(x: Any) -> Tensor:
    def floats(y: Any) -> Any:
        return [floats(row) for row in y] if isinstance(y, list) else float(y)

    return torch.tensor(floats(x), dtype=torch.float64)


# --- vectors ------------------------------------------------------------------------------------


def dot(a: Vector, b: Vector) -> Number:
    return mp.fsum(x * y for x, y in zip(a, b, strict=True))


def length(a: Vector) -> Number:
    return mp.sqrt(dot(a, a))


def combine(*terms: tuple[Number, Vector]) -> Vector:
    """``Σ cᵢ·aᵢ``."""
    return [
        mp.fsum(c * x for (c, _), x in zip(terms, xs, strict=True))
        for xs in zip(*(a for _, a in terms), strict=True)
    ]


def inner(u: Vector, v: Vector) -> Number:
    """The Lorentz product of ambient vectors."""
    return dot(u[1:], v[1:]) - u[0] * v[0]


def point(space: Vector, c: Number = 1) -> Vector:
    return [mp.sqrt(1 / mp.mpf(c) + dot(space, space)), *space]


def tangent(x: Vector, space: Vector) -> Vector:
    """The ambient vector with this space part that is tangent at the point ``x``."""
    return [dot(x[1:], space) / x[0], *space]


# --- geometry: space parts in, ambient vectors out ----------------------------------------------


def dist(x: Vector, y: Vector, c: Number = 1) -> Number:
    c = mp.mpf(c)
    return mp.acosh(max(mp.one, -c * inner(point(x, c), point(y, c)))) / mp.sqrt(c)


def exp(x: Vector, u: Vector, c: Number = 1) -> Vector:
    root, p = mp.sqrt(c), point(x, c)
    w = tangent(p, u)
    r = root * mp.sqrt(max(mp.zero, inner(w, w)))
    return combine((mp.cosh(r), p), (sinhc(r), w))


def log(x: Vector, y: Vector, c: Number = 1) -> Vector:
    c = mp.mpf(c)
    p, q = point(x, c), point(y, c)
    alpha = max(mp.one, -c * inner(p, q))
    if alpha == 1:
        return [mp.zero] * len(p)
    factor = mp.acosh(alpha) / mp.sqrt(alpha**2 - 1)
    return combine((factor, q), (-factor * alpha, p))


def transport(x: Vector, y: Vector, u: Vector, c: Number = 1) -> Vector:
    c = mp.mpf(c)
    p, q = point(x, c), point(y, c)
    w = tangent(p, u)
    factor = c * inner(q, w) / (1 - c * inner(p, q))
    return combine((mp.one, w), (factor, p), (factor, q))


def push(x: Vector, v: Vector, c: Number = 1) -> Vector:
    return transport([mp.zero] * len(x), x, v, c)


def pull(x: Vector, u: Vector, c: Number = 1) -> Vector:
    return transport(x, [mp.zero] * len(x), u, c)[1:]


def wrap(x: Vector, v: Vector, c: Number = 1) -> Vector:
    return exp(x, push(x, v, c)[1:], c)


def unwrap(x: Vector, y: Vector, c: Number = 1) -> Vector:
    return pull(x, log(x, y, c)[1:], c)


# --- functions of a radius ----------------------------------------------------------------------


def sinhc(r: Number) -> Number:
    return mp.sinh(r) / r if r else mp.one


def log_sinhc(r: Number) -> Number:
    return mp.log(sinhc(r))


def asinhc(r: Number) -> Number:
    return mp.asinh(r) / r if r else mp.one


# --- densities ----------------------------------------------------------------------------------


def cholesky(a: Matrix) -> Matrix:
    n = len(a)
    low: Matrix = [[mp.zero] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            rest = a[i][j] - dot(low[i][:j], low[j][:j])
            low[i][j] = mp.sqrt(rest) if i == j else rest / low[j][j]
    return low


def solve_lower(low: Matrix, v: Vector) -> Vector:
    solution: Vector = []
    for i, row in enumerate(low):
        solution.append((v[i] - dot(row[:i], solution)) / row[i])
    return solution


def log_det_lower(low: Matrix) -> Number:
    return mp.fsum(mp.log(row[i]) for i, row in enumerate(low))


def normal(form: str, parameter: Tensor) -> LogDensity:
    """The log-density of ``N(0, Σ)`` on ``R^n``, with ``Σ`` as the floats of one of its forms."""
    if form == "scale":
        return normal_diagonal(parameter)
    matrix: Matrix = exactly(parameter)
    if form == "precision_matrix":
        log_det = -log_det_lower(cholesky(matrix))
        return lambda v: _normal(dot(v, [dot(row, v) for row in matrix]), log_det, len(v))
    low = cholesky(matrix) if form == "covariance_matrix" else matrix
    log_det = log_det_lower(low)
    return lambda v: _normal(dot(white := solve_lower(low, v), white), log_det, len(v))


def normal_diagonal(scale: Tensor) -> LogDensity:
    deviations: Vector = exactly(scale)
    log_det = mp.fsum(map(mp.log, deviations))

    def log_density(v: Vector) -> Number:
        white = [x / s for x, s in zip(v, deviations, strict=True)]
        return _normal(dot(white, white), log_det, len(v))

    return log_density


def _normal(square: Number, log_det_root: Number, n: int) -> Number:
    return -square / 2 - log_det_root - n * mp.log(2 * mp.pi) / 2


def log_prob(z: Vector, mu: Vector, base: LogDensity, c: Number = 1) -> Number:
    """Algorithm 2 for the space parts of ``z`` and ``μ``."""
    return log_prob_of_tangent(unwrap(mu, z, c), base, c)


def log_prob_of_tangent(v: Vector, base: LogDensity, c: Number = 1) -> Number:
    return base(v) - (len(v) - 1) * log_sinhc(mp.sqrt(c) * length(v))


def mean_log_sinhc(variances: Sequence[float], c: float = 1.0) -> float:
    """``E[log sinhc(√c|v|)]`` for ``v ~ N(0, diag)``, by quadrature; isotropic, or n = 2."""
    ctx: Any = MPContext()
    ctx.dps = 20
    n, root = len(variances), ctx.sqrt(c)

    def g(r: Number) -> Number:
        return ctx.log(ctx.sinh(root * r) / (root * r)) if r else ctx.zero

    if len(set(variances)) == 1:
        s = ctx.sqrt(variances[0])
        log_norm = ctx.log(2) * (1 - ctx.mpf(n) / 2) - ctx.loggamma(ctx.mpf(n) / 2)

        def chi(x: Number) -> Number:
            density = ctx.exp(log_norm + (n - 1) * ctx.log(x) - x * x / 2) if x else ctx.zero
            return density * g(s * x)

        centre = ctx.sqrt(n)
        knots = [max(ctx.zero, centre + d) for d in (-12, -6, -3, -1.5, 0, 1.5, 3, 6, 12)]
        return float(ctx.quad(chi, sorted(set(knots))))

    assert n == 2
    s0, s1 = (ctx.sqrt(x) for x in variances)

    def given_angle(theta: Number) -> Number:
        stretch = ctx.sqrt((s0 * ctx.cos(theta)) ** 2 + (s1 * ctx.sin(theta)) ** 2)
        return ctx.quad(lambda r: r * ctx.exp(-r * r / 2) * g(r * stretch), [0, 2, 5, 11])

    ctx.dps = 15
    return float(ctx.quad(given_angle, [0, ctx.pi / 4, ctx.pi / 2]) * 2 / ctx.pi)


def log_normaliser(n: int, sigma: float, c: float = 1.0, dps: int = 30) -> Number:
    """``log ∫ exp(−d²/2σ²) dvol`` over ``H^n``, by quadrature over the radius in units of ``σ``."""
    ctx: Any = MPContext()
    ctx.dps = dps
    scale = ctx.mpf(sigma)
    s = scale * ctx.sqrt(c)
    k = (n - 1) * s * s
    mode = (k + ctx.sqrt(k * (k + 4))) / 2  # of sinh(x)^(n−1)·exp(−x²/2s²), roughly
    for _ in range(20):
        t = ctx.tanh(mode)
        if n > 1:
            mode -= (mode * t - k) / (t + mode * (1 - t * t))

    def f(r: Number) -> Number:
        return (ctx.sinh(s * r) / s) ** (n - 1) * ctx.exp(-r * r / 2)

    knots = sorted({max(ctx.zero, mode / s + d) for d in range(-16, 17, 2)})
    area = ctx.log(2) + ctx.mpf(n) / 2 * ctx.log(ctx.pi) - ctx.loggamma(ctx.mpf(n) / 2)
    return area + n * ctx.log(scale) + ctx.log(ctx.quad(f, knots))
