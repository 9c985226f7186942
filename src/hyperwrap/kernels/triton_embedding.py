r"""A training step of an embedding, and the energies of its evaluation, as GPU kernels.

Drawing, scoring, the objective and the optimiser are fused. The formulas and symbols are those of
`hyperwrap.kernels.pairwise` and `hyperwrap.embedding.objective`, which also are what these kernels
are tested against. A program works on a tile of draws × candidates and walks over the coordinates,
so that nothing but the tile is held, whatever ``n`` is:

- `softmax_step`: scores of a tile (`_scores`), then its gradients (`_gradients`), which add up
  what the candidates receive and, in ``grad_y``, what the draws do; then `_finish` hands the
  latter on to the anchors. Negatives are shared by the draws of a group.
- `hinge_step`: both at once (`_hinge`), a tile being edges × draws.
- `adam_step`, `adagrad_step`: the update, one pass over all nodes.
- `energies`: mean scores of every node for draws from some.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = [
    "Scratch",
    "adagrad_step",
    "adam_step",
    "energies",
    "hinge_step",
    "scratch",
    "softmax_step",
]

_TINY = tl.constexpr(1e-37)
_RADIAL = tl.constexpr(0)  # in place of a number of columns: two, along the ray and across it
_LEAST = tl.constexpr(1.4e-14)  # length of a view in float32, see `pairwise._look`


# --- functions of a number ---------------------------------------------------------------------


@triton.jit
def _sinh(x):
    e = tl.exp(x)
    x2 = x * x
    near = x * (1 + x2 / 6 * (1 + x2 / 20 * (1 + x2 / 42 * (1 + x2 / 72))))
    return tl.where(x2 < 0.3, near, (e - 1 / e) / 2)


@triton.jit
def _one_minus_exp(x):
    """``1 − e^{−x}`` for ``x ≥ 0``."""
    near = x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5 * (1 - x / 6)))))
    return tl.where(x < 0.2, near, 1 - tl.exp(-x))


@triton.jit
def _log1p(x):
    """For ``x ≥ 0``; what rounding ``1 + x`` loses is put back to first order."""
    y = 1 + x
    return tl.log(y) + (x - (y - 1)) / y


@triton.jit
def _sinhc(r):
    """``e^{−r}·sinh(r)/r``."""
    return _one_minus_exp(2 * r) / (2 * tl.maximum(r, 1e-30))


@triton.jit
def _sinhc_slope(r):
    q = r * r
    near = tl.exp(-r) * (1 + q / 10 * (1 + q / 28 * (1 + q / 54 * (1 + q / 88)))) / 6
    far = ((1 + tl.exp(-2 * r)) / 2 - _sinhc(r)) / (2 * tl.maximum(q, 0.1))
    return tl.where(q < 0.5, near, far)


# --- nodes, draws, views -------------------------------------------------------------------------


@triton.jit
def _centre(H, node, n: tl.constexpr, COLS: tl.constexpr):
    """``ρ`` and ``1/ρ`` in the dtype of ``h``; ``sinh ρ``, ``cosh ρ − 1``, how the frame turns."""
    rho2 = tl.zeros(node.shape, H.dtype.element_ty)
    for i in range(n):
        h = tl.load(H + node * n + i)
        rho2 += h * h
    rho = tl.sqrt(rho2)
    inverse = 1 / tl.maximum(rho, _TINY)
    short = rho.to(tl.float32)
    half, sinh = _sinh(short / 2), _sinh(short)
    turn = _one_minus_exp(short) / (1 + tl.exp(-short))
    if COLS == _RADIAL:
        turn += 1 / tl.maximum(sinh, 1e-6)
    return rho, inverse, sinh, 2 * half * half, turn


@triton.jit
def _m(H, node, inverse, i, n: tl.constexpr):
    """A coordinate of the direction, in the dtype of ``h``."""
    return tl.load(H + node * n + i) * inverse


@triton.jit
def _log_scale(LS, node, i, COLS: tl.constexpr):
    """``log σᵢ``: one column stands for all; of a radial law's two, the second."""
    if COLS == 1:
        return tl.load(LS + node)
    elif COLS == _RADIAL:
        return tl.load(LS + node * 2 + 1)
    else:
        return tl.load(LS + node * COLS + i)


@triton.jit
def _throw(
    H, LS, NODES, NOISE, T, rows, nodes, n: tl.constexpr,
    EACH: tl.constexpr, BLOCK: tl.constexpr, COLS: tl.constexpr, POINT: tl.constexpr,
):  # fmt: skip
    """Draws ``t = L·ε`` in the frames of their nodes, ``EACH`` rows for a node; points have 0."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = row < rows
    row = tl.minimum(row, rows - 1)
    node = tl.load(NODES + (row // EACH) % nodes)
    along = tl.zeros((BLOCK,), tl.float32)
    if COLS == _RADIAL:
        rho, inverse, sinh, cosh_1, turn = _centre(H, node, n, COLS)
        for i in range(n):
            along += tl.load(NOISE + row * n + i) * _m(H, node, inverse, i, n).to(tl.float32)
        along *= tl.exp(tl.load(LS + node * 2)) - tl.exp(tl.load(LS + node * 2 + 1))
    for i in range(n):
        t = tl.load(NOISE + row * n + i)
        if POINT:
            t = 0.0 * t
        else:
            t *= tl.exp(_log_scale(LS, node, i, COLS))
        if COLS == _RADIAL:
            t += along * _m(H, node, inverse, i, n).to(tl.float32)
        tl.store(T + row * n + i, t, mask=ok)


@triton.jit
def _draw(H, T, node, row, rho, inverse, sinh, cosh_1, n: tl.constexpr):
    """``|t|``, and times ``e^{−λ}`` the factor ``S`` of ``y = S·t``, ``y₀``, ``y₁`` and ``α``."""
    t2 = tl.zeros((node + row).shape, tl.float32)
    t1 = tl.zeros((node + row).shape, tl.float32)
    for i in range(n):
        t = tl.load(T + row * n + i)
        t2 += t * t
        t1 += t * _m(H, node, inverse, i, n).to(tl.float32)
    length = tl.sqrt(t2)
    shrink = tl.exp(-rho.to(tl.float32))
    s = shrink * tl.where(length < 1e-6, 1.0, _sinhc(length))
    y0 = shrink * (1 + tl.exp(-2 * length)) / 2
    y1 = s * t1
    return length, s, y0, y1, sinh * y0 + cosh_1 * y1


@triton.jit
def _place(
    H, T, a, row, a_inv, s, c, c_inv, alpha, beta, i, n: tl.constexpr, HYPERBOLIC: tl.constexpr,
):  # fmt: skip
    """A coordinate of ``w``, of ``u`` and of ``m_c``."""
    t = tl.load(T + row * n + i)
    if HYPERBOLIC:
        m_c = _m(H, c, c_inv, i, n)
        u = (_m(H, a, a_inv, i, n) - m_c).to(tl.float32)
        m_c = m_c.to(tl.float32)
        return s * t + alpha * u + beta * m_c, u, m_c
    else:
        h_c = tl.load(H + c * n + i)
        return (tl.load(H + a * n + i) + t - h_c).to(tl.float32), t, h_c.to(tl.float32)


@triton.jit
def _look(
    H, T, a, row, a_rho, a_inv, s, y0, y1, alpha,
    c, c_rho, c_inv, c_sinh, c_cosh_1, n: tl.constexpr, HYPERBOLIC: tl.constexpr,
):  # fmt: skip
    """``½|u|²``, ``sinh Δ``, ``cosh Δ − 1``, ``β`` and ``X``; Euclidean space needs none."""
    shape: tl.constexpr = (a + row + c).shape
    u2 = tl.zeros(shape, tl.float32)
    u_y = tl.zeros(shape, tl.float32)
    if HYPERBOLIC:
        for i in range(n):
            t = tl.load(T + row * n + i)
            u = (_m(H, a, a_inv, i, n) - _m(H, c, c_inv, i, n)).to(tl.float32)
            u2 += u * u
            u_y += s * t * u
        delta = (a_rho - c_rho).to(tl.float32)
        half = _sinh(delta / 2)
        sinh_delta, cosh_delta_1 = _sinh(delta), 2 * half * half
        kappa = u_y + 0.5 * u2 * alpha
        beta = sinh_delta * y0 + cosh_delta_1 * y1 - c_cosh_1 * kappa
        size = y0 * (1 + cosh_delta_1) + tl.abs(sinh_delta * y1) + c_sinh * tl.abs(kappa)
        return 0.5 * u2, sinh_delta, cosh_delta_1, beta, size
    else:
        return u2, u2, u2, u2, u2 + 1


@triton.jit
def _pressed(LS, c, w, m_c, w_m, i, COLS: tl.constexpr):
    """A coordinate of ``Σ⁻¹w``."""
    pressed = w * tl.exp(-2 * _log_scale(LS, c, i, COLS))
    if COLS == _RADIAL:
        across = tl.exp(-2 * tl.load(LS + c * 2 + 1))
        pressed += (tl.exp(-2 * tl.load(LS + c * 2)) - across) * w_m * m_c
    return pressed


@triton.jit
def _score(
    H, LS, T, a, row, a_inv, exponent, s, alpha, c, c_inv, beta, n: tl.constexpr,
    COLS: tl.constexpr, POINT: tl.constexpr, HYPERBOLIC: tl.constexpr,
):  # fmt: skip
    """``f``, and for its gradient ``φ``, the slope, ``φ²Q``, ``w₀`` and ``⟨w, m_c⟩``.

    For points the first two are ``1/|w|`` and ``1/w₀``.
    """
    shape: tl.constexpr = (a + row + c).shape
    w2 = tl.zeros(shape, tl.float32)
    quadratic = tl.zeros(shape, tl.float32)
    w_m = tl.zeros(shape, tl.float32)
    log_scales = tl.zeros(shape, tl.float32)
    for i in range(n):
        w, u, m_c = _place(H, T, a, row, a_inv, s, c, c_inv, alpha, beta, i, n, HYPERBOLIC)
        w2 += w * w
        w_m += w * m_c
        if not POINT:
            if COLS != _RADIAL:
                log_scale = _log_scale(LS, c, i, COLS)
                quadratic += w * w * tl.exp(-2 * log_scale)
                log_scales += log_scale
    if COLS == _RADIAL:
        along, across = tl.load(LS + c * 2), tl.load(LS + c * 2 + 1)
        quadratic += w_m * w_m * tl.exp(-2 * along)
        quadratic += tl.maximum(w2 - w_m * w_m, 0.0) * tl.exp(-2 * across)
        log_scales += along + (n - 1) * across
    if HYPERBOLIC:
        size = tl.maximum(tl.sqrt(w2), _LEAST)
        scale = tl.exp(-exponent)
        w0 = tl.sqrt(scale * scale + size * size)
        near = _log1p((size + size * size / (scale + w0)) / tl.maximum(scale, _TINY))
        r = tl.where(size < scale, near, tl.log(size + w0) + exponent)
        if POINT:
            return -r, 1 / size, 1 / w0, r, w0, w_m
        else:
            q = r * r
            series = 1 / 3 - q / 45 * (1 - q * 2 / 21 * (1 - q / 10))
            slope = tl.where(r < 0.2, series, (w0 / size - 1 / r) / r) / w0
            phi = r / size
            quadratic *= phi * phi
            log_det = tl.log(size / r) + exponent
            return -0.5 * quadratic - log_scales - (n - 1) * log_det, phi, slope, quadratic, w0, w_m
    else:
        size = tl.maximum(tl.sqrt(w2), _TINY)
        if POINT:
            return -size, 1 / size, 0.0 * size + 1, size, size, w_m
        else:
            return -0.5 * quadratic - log_scales, size, size, quadratic, size, w_m


@triton.jit
def _seen(
    H, LS, T, a, row, a_rho, a_inv, length, s, y0, y1, alpha, c, n: tl.constexpr,
    COLS: tl.constexpr, POINT: tl.constexpr, HYPERBOLIC: tl.constexpr,
):  # fmt: skip
    """`_centre`, `_look` and `_score` from candidates ``c``: ``f``, then what `_pull` needs."""
    c_rho, c_inv, c_sinh, c_cosh_1, c_turn = _centre(H, c, n, COLS)
    half_u2, sinh_delta, cosh_delta_1, beta, size = _look(
        H, T, a, row, a_rho, a_inv, s, y0, y1, alpha,
        c, c_rho, c_inv, c_sinh, c_cosh_1, n, HYPERBOLIC,
    )  # fmt: skip
    inverse = 1 / size
    exponent = length + a_rho.to(tl.float32) + tl.log(size)
    f, phi, slope, quadratic, w0, w_m = _score(
        H, LS, T, a, row, a_inv, exponent, inverse * s, inverse * alpha,
        c, c_inv, inverse * beta, n, COLS, POINT, HYPERBOLIC,
    )  # fmt: skip
    return (
        f, c_inv, c_cosh_1, c_turn, half_u2, sinh_delta, cosh_delta_1, beta, inverse,
        phi, slope, quadratic, w0, w_m,
    )  # fmt: skip


@triton.jit
def _pull(
    H, LS, T, GRAD_H, GRAD_LS, GRAD_Y, GRAD_Y0,
    a, row, a_ok, a_inv, a_sinh, a_cosh_1, s, alpha,
    c, c_ok, c_inv, c_cosh_1, c_turn, half_u2, sinh_delta, cosh_delta_1, beta, inverse,
    weight, phi, slope, quadratic, w0, w_m, n: tl.constexpr,
    AXIS: tl.constexpr, COLS: tl.constexpr, POINT: tl.constexpr, HYPERBOLIC: tl.constexpr,
):  # fmt: skip
    """Adds the gradient of ``weight·f``: to candidates, summed over ``AXIS``, and to draws."""
    s, alpha, beta = inverse * s, inverse * alpha, inverse * beta
    if POINT:
        square, bend = 0.0 * weight, -weight * slope
    elif HYPERBOLIC:
        square, bend = weight * phi * phi, weight * phi * slope * (quadratic - (n - 1))
    else:
        square, bend = weight, 0.0 * weight
    g_m = 0.0 * weight
    g_u = 0.0 * weight
    if HYPERBOLIC:
        for i in range(n):
            w, u, m_c = _place(H, T, a, row, a_inv, s, c, c_inv, alpha, beta, i, n, HYPERBOLIC)
            g = bend * (w * phi) if POINT else bend * w
            if not POINT:
                g -= square * _pressed(LS, c, w, m_c, w_m, i, COLS)
            g_m += g * m_c
            g_u += g * u
        p_m = inverse * g_m  # 1/X first: it takes the size from products of two factors e^ρ
        omega = inverse * g_u - half_u2 * c_cosh_1 * p_m
        along = a_cosh_1 * omega + cosh_delta_1 * p_m
        _add_draw(GRAD_Y0, row, a_sinh * omega + sinh_delta * p_m, a_ok, AXIS)
    total = 0.0 * weight
    for i in range(n):
        w, u, m_c = _place(H, T, a, row, a_inv, s, c, c_inv, alpha, beta, i, n, HYPERBOLIC)
        g = bend * (w * phi) if POINT else bend * w
        if not POINT:
            pressure = square * _pressed(LS, c, w, m_c, w_m, i, COLS)
            g -= pressure
            total += pressure * w - weight
            if COLS > 1:
                _add_candidate(GRAD_LS + c * COLS + i, pressure * w - weight, c_ok, AXIS)
        if HYPERBOLIC:
            grad_c = c_turn * g_m * w - (w0 + c_turn * w_m) * g
            m_a = _m(H, a, a_inv, i, n).to(tl.float32)
            grad_y = inverse * g + along * m_a - c_cosh_1 * p_m * u
        else:
            grad_c, grad_y = -g, g
        _add_candidate(GRAD_H + c * n + i, grad_c, c_ok, AXIS)
        _add_draw(GRAD_Y, row * n + i, grad_y, a_ok, AXIS)
    if not POINT:
        if COLS == 1:
            _add_candidate(GRAD_LS + c, total, c_ok, AXIS)
        if COLS == _RADIAL:
            own = square * w_m * w_m * tl.exp(-2 * tl.load(LS + c * 2)) - weight
            _add_candidate(GRAD_LS + c * 2, own, c_ok, AXIS)
            _add_candidate(GRAD_LS + c * 2 + 1, total - own, c_ok, AXIS)


@triton.jit
def _add_candidate(where, value, ok, AXIS: tl.constexpr):
    """Draws of a group look at shared candidates (0), or each edge's at its own (1)."""
    tl.atomic_add(where, tl.sum(value, AXIS, keep_dims=True), mask=ok, sem="relaxed")


@triton.jit
def _add_draw(base, row, value, ok, AXIS: tl.constexpr):
    """A draw is looked at by all candidates of the tile (0), or by one (1)."""
    if AXIS == 0:
        tl.atomic_add(base + row, tl.sum(value, 1, keep_dims=True), mask=ok, sem="relaxed")
    else:
        tl.atomic_add(base + row, value, mask=ok, sem="relaxed")


# --- softmax --------------------------------------------------------------------------------------


@triton.jit
def _scores(
    H, LS, EDGES, NEGATIVES, T, KNOWN, F, count, nodes, n: tl.constexpr,
    SHIFT: tl.constexpr, A: tl.constexpr, B: tl.constexpr,
    K: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_K: tl.constexpr,
    COLS: tl.constexpr, POINT: tl.constexpr, HYPERBOLIC: tl.constexpr,
):  # fmt: skip
    """``f`` of the parent in column 0 of ``F``, of negatives after it."""
    group, block = tl.program_id(0), tl.program_id(1)
    row = group * BLOCK_E + tl.arange(0, BLOCK_E)[:, None]
    a_ok = row < count
    row = tl.minimum(row, count - 1)
    a = tl.load(EDGES + row)
    b = tl.load(EDGES + count + row)
    a_rho, a_inv, a_sinh, a_cosh_1, a_turn = _centre(H, a, n, COLS)
    length, s, y0, y1, alpha = _draw(H, T, a, row, a_rho, a_inv, a_sinh, a_cosh_1, n)
    k = block * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
    c = tl.load(NEGATIVES + group * K + tl.minimum(k, K - 1))
    (
        f, c_inv, c_cosh_1, c_turn, c_half_u2, c_sinh_delta, c_cosh_delta_1, c_beta,
        c_inverse, c_phi, c_slope, c_quadratic, c_w0, c_wm,
    ) = _seen(
        H, LS, T, a, row, a_rho, a_inv, length, s, y0, y1, alpha, c,
        n, COLS, POINT, HYPERBOLIC,
    )  # fmt: skip
    clash = (c == a) | (c == b)
    place = (a % nodes).to(tl.uint32) * A + (c % nodes).to(tl.uint32) * B
    clash = clash | (tl.load(KNOWN + (place >> SHIFT)) != 0)  # a parent, too: see `Known`
    f = tl.where(clash, -float("inf"), f)
    tl.store(F + row * (K + 1) + 1 + k, f, mask=a_ok & (k < K))
    if block == 0:
        (
            f_b, b_inv, b_cosh_1, b_turn, b_half_u2, b_sinh_delta, b_cosh_delta_1, b_beta,
            b_inverse, b_phi, b_slope, b_quadratic, b_w0, b_wm,
        ) = _seen(
            H, LS, T, a, row, a_rho, a_inv, length, s, y0, y1, alpha, b,
            n, COLS, POINT, HYPERBOLIC,
        )  # fmt: skip
        tl.store(F + row * (K + 1), f_b, mask=a_ok)


@triton.jit
def _gradients(
    H, LS, EDGES, NEGATIVES, T, WEIGHT, F, LOSS, GRAD_H, GRAD_LS, GRAD_Y, GRAD_Y0, count,
    n: tl.constexpr, K: tl.constexpr, ALL_K: tl.constexpr, TEMPERED: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_K: tl.constexpr,
    COLS: tl.constexpr, POINT: tl.constexpr, HYPERBOLIC: tl.constexpr,
):  # fmt: skip
    group, block = tl.program_id(0), tl.program_id(1)
    row = group * BLOCK_E + tl.arange(0, BLOCK_E)[:, None]
    a_ok = row < count
    row = tl.minimum(row, count - 1)
    every = tl.arange(0, ALL_K)[None, :]
    logits = tl.load(F + row * (K + 1) + every, mask=every <= K, other=-float("inf"))
    top = tl.max(logits, 1, keep_dims=True)
    log_sum = top + tl.log(tl.sum(tl.exp(logits - top), 1, keep_dims=True))
    edge_weight = tl.load(WEIGHT + row, mask=a_ok, other=0.0)
    if TEMPERED:
        edge_weight /= 1 + log_sum - tl.load(F + row * (K + 1), mask=a_ok, other=0.0)
    a = tl.load(EDGES + row)
    a_rho, a_inv, a_sinh, a_cosh_1, a_turn = _centre(H, a, n, COLS)
    length, s, y0, y1, alpha = _draw(H, T, a, row, a_rho, a_inv, a_sinh, a_cosh_1, n)
    k = block * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
    c_ok = k < K
    c = tl.load(NEGATIVES + group * K + tl.minimum(k, K - 1))
    (
        f, c_inv, c_cosh_1, c_turn, c_half_u2, c_sinh_delta, c_cosh_delta_1, c_beta,
        c_inverse, c_phi, c_slope, c_quadratic, c_w0, c_wm,
    ) = _seen(
        H, LS, T, a, row, a_rho, a_inv, length, s, y0, y1, alpha, c,
        n, COLS, POINT, HYPERBOLIC,
    )  # fmt: skip
    logit = tl.load(F + row * (K + 1) + 1 + k, mask=c_ok, other=-float("inf"))
    weight = edge_weight * tl.exp(logit - log_sum)
    _pull(
        H, LS, T, GRAD_H, GRAD_LS, GRAD_Y, GRAD_Y0,
        a, row, a_ok, a_inv, a_sinh, a_cosh_1, s, alpha,
        c, c_ok, c_inv, c_cosh_1, c_turn, c_half_u2, c_sinh_delta, c_cosh_delta_1,
        c_beta, c_inverse, weight, c_phi, c_slope, c_quadratic, c_w0, c_wm,
        n, 0, COLS, POINT, HYPERBOLIC,
    )  # fmt: skip
    if block == 0:
        b = tl.load(EDGES + count + row)
        (
            f_b, b_inv, b_cosh_1, b_turn, b_half_u2, b_sinh_delta, b_cosh_delta_1, b_beta,
            b_inverse, b_phi, b_slope, b_quadratic, b_w0, b_wm,
        ) = _seen(
            H, LS, T, a, row, a_rho, a_inv, length, s, y0, y1, alpha, b,
            n, COLS, POINT, HYPERBOLIC,
        )  # fmt: skip
        log_p = f_b - log_sum
        tl.store(LOSS + row, -log_p, mask=a_ok)
        weight_b = edge_weight * (tl.exp(log_p) - 1)
        _pull(
            H, LS, T, GRAD_H, GRAD_LS, GRAD_Y, GRAD_Y0,
            a, row, a_ok, a_inv, a_sinh, a_cosh_1, s, alpha,
            b, a_ok, b_inv, b_cosh_1, b_turn, b_half_u2, b_sinh_delta, b_cosh_delta_1,
            b_beta, b_inverse, weight_b, b_phi, b_slope, b_quadratic, b_w0, b_wm,
            n, 1, COLS, POINT, HYPERBOLIC,
        )  # fmt: skip


@triton.jit
def _finish(
    H, LS, EDGES, T, GRAD_H, GRAD_LS, GRAD_Y, GRAD_Y0, rows, edges,
    n: tl.constexpr, BLOCK: tl.constexpr,
    COLS: tl.constexpr, POINT: tl.constexpr, HYPERBOLIC: tl.constexpr,
):  # fmt: skip
    """From the draws to their anchors; leaves ``GRAD_Y`` as it wants to find it, zero."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = row < rows
    row = tl.minimum(row, rows - 1)
    a = tl.load(EDGES + row % edges, mask=ok, other=0)
    rho, inverse, sinh, cosh_1, turn = _centre(H, a, n, COLS)
    length, s, y0, y1, alpha = _draw(H, T, a, row, rho, inverse, sinh, cosh_1, n)
    g0 = tl.load(GRAD_Y0 + row, mask=ok, other=0.0)
    tl.store(GRAD_Y0 + row, 0.0, mask=ok)
    g_m = tl.zeros((BLOCK,), tl.float32)
    g_t = tl.zeros((BLOCK,), tl.float32)
    t_m = tl.zeros((BLOCK,), tl.float32)
    if HYPERBOLIC:
        for i in range(n):
            g = tl.load(GRAD_Y + row * n + i, mask=ok, other=0.0)
            m, t = _m(H, a, inverse, i, n).to(tl.float32), tl.load(T + row * n + i)
            g_m += g * m
            g_t += g * t
            t_m += t * m
    along = 2 * tl.exp(-rho.to(tl.float32)) * _sinhc_slope(length) * g_t + s * g0
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(n):
        g = tl.load(GRAD_Y + row * n + i, mask=ok, other=0.0)
        tl.store(GRAD_Y + row * n + i, 0.0, mask=ok)
        t = tl.load(T + row * n + i)
        if HYPERBOLIC:
            grad_a = (y0 + turn * y1) * g + (g0 - turn * g_m) * s * t
            grad_t = s * g + along * t
        else:
            grad_a, grad_t = g, g
        tl.atomic_add(GRAD_H + a * n + i, grad_a, mask=ok, sem="relaxed")
        total += grad_t * t
        if not POINT:
            if COLS > 1:
                tl.atomic_add(GRAD_LS + a * COLS + i, grad_t * t, mask=ok, sem="relaxed")
    if not POINT:
        if COLS == 1:
            tl.atomic_add(GRAD_LS + a, total, mask=ok, sem="relaxed")
        if COLS == _RADIAL:
            own = (s * g_m + along * t_m) * t_m
            tl.atomic_add(GRAD_LS + a * 2, own, mask=ok, sem="relaxed")
            tl.atomic_add(GRAD_LS + a * 2 + 1, total - own, mask=ok, sem="relaxed")


# --- hinge ----------------------------------------------------------------------------------------


@triton.jit
def _hinge(
    H, LS, EDGES, NEGATIVES, T, WEIGHT, LOSS, GRAD_H, GRAD_LS, GRAD_Y, GRAD_Y0,
    edges, n: tl.constexpr, draws: tl.constexpr, margin,
    BLOCK_E: tl.constexpr, BLOCK_S: tl.constexpr,
    COLS: tl.constexpr, POINT: tl.constexpr, HYPERBOLIC: tl.constexpr,
):  # fmt: skip
    edge = tl.program_id(0) * BLOCK_E + tl.arange(0, BLOCK_E)[:, None]
    draw = tl.program_id(1) * BLOCK_S + tl.arange(0, BLOCK_S)[None, :]
    e_ok = edge < edges
    ok = e_ok & (draw < draws)
    edge = tl.minimum(edge, edges - 1)
    row = tl.minimum(draw, draws - 1) * edges + edge
    a = tl.load(EDGES + edge, mask=e_ok, other=0)
    b = tl.load(EDGES + edges + edge, mask=e_ok, other=0)
    c = tl.load(NEGATIVES + edge, mask=e_ok, other=0)
    a_rho, a_inv, a_sinh, a_cosh_1, a_turn = _centre(H, a, n, COLS)
    length, s, y0, y1, alpha = _draw(H, T, a, row, a_rho, a_inv, a_sinh, a_cosh_1, n)
    (
        f_b, b_inv, b_cosh_1, b_turn, b_half_u2, b_sinh_delta, b_cosh_delta_1, b_beta,
        b_inverse, b_phi, b_slope, b_quadratic, b_w0, b_wm,
    ) = _seen(
        H, LS, T, a, row, a_rho, a_inv, length, s, y0, y1, alpha, b,
        n, COLS, POINT, HYPERBOLIC,
    )  # fmt: skip
    (
        f_c, c_inv, c_cosh_1, c_turn, c_half_u2, c_sinh_delta, c_cosh_delta_1, c_beta,
        c_inverse, c_phi, c_slope, c_quadratic, c_w0, c_wm,
    ) = _seen(
        H, LS, T, a, row, a_rho, a_inv, length, s, y0, y1, alpha, c,
        n, COLS, POINT, HYPERBOLIC,
    )  # fmt: skip
    loss = tl.where(ok, tl.maximum(margin + f_c - f_b, 0.0), 0.0)
    tl.atomic_add(LOSS + edge, tl.sum(loss, 1, keep_dims=True) / draws, mask=e_ok, sem="relaxed")
    weight = tl.where(loss > 0, tl.load(WEIGHT + edge, mask=e_ok, other=0.0) / draws, 0.0)
    _pull(
        H, LS, T, GRAD_H, GRAD_LS, GRAD_Y, GRAD_Y0,
        a, row, ok, a_inv, a_sinh, a_cosh_1, s, alpha,
        b, e_ok, b_inv, b_cosh_1, b_turn, b_half_u2, b_sinh_delta, b_cosh_delta_1,
        b_beta, b_inverse, -weight, b_phi, b_slope, b_quadratic, b_w0, b_wm,
        n, 1, COLS, POINT, HYPERBOLIC,
    )  # fmt: skip
    _pull(
        H, LS, T, GRAD_H, GRAD_LS, GRAD_Y, GRAD_Y0,
        a, row, ok, a_inv, a_sinh, a_cosh_1, s, alpha,
        c, e_ok, c_inv, c_cosh_1, c_turn, c_half_u2, c_sinh_delta, c_cosh_delta_1,
        c_beta, c_inverse, weight, c_phi, c_slope, c_quadratic, c_w0, c_wm,
        n, 1, COLS, POINT, HYPERBOLIC,
    )  # fmt: skip


# --- updates --------------------------------------------------------------------------------------


@triton.jit
def _adam(
    H, LS, GRAD_H, GRAD_LS, M_H, V_H, M_LS, V_LS, RATES, count, n: tl.constexpr,
    low, high, radius, beta_1, beta_2, eps,
    BLOCK: tl.constexpr, COLS: tl.constexpr, POINT: tl.constexpr, HYPERBOLIC: tl.constexpr,
):  # fmt: skip
    node = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = node < count
    rate_h, rate_ls = tl.load(RATES), tl.load(RATES + 1)
    correct_1, correct_2 = tl.load(RATES + 2), tl.load(RATES + 3)
    g2 = tl.zeros((BLOCK,), tl.float32)
    rho2 = tl.zeros((BLOCK,), tl.float64)
    for i in range(n):
        g = tl.load(GRAD_H + node * n + i, mask=ok, other=0.0)
        h = tl.load(H + node * n + i, mask=ok, other=0.0).to(tl.float64)
        g2 += g * g
        rho2 += h * h
    v = beta_2 * tl.load(V_H + node, mask=ok, other=0.0) + (1 - beta_2) * g2 / n
    tl.store(V_H + node, v, mask=ok)
    step = -rate_h / correct_1 / (tl.sqrt(v / correct_2) + eps)
    rho = tl.sqrt(rho2)
    inverse = 1 / tl.maximum(rho, 1e-300)
    t2 = tl.zeros((BLOCK,), tl.float64)
    t1 = tl.zeros((BLOCK,), tl.float64)
    for i in range(n):
        g = tl.load(GRAD_H + node * n + i, mask=ok, other=0.0)
        tl.store(GRAD_H + node * n + i, 0.0, mask=ok)
        m = beta_1 * tl.load(M_H + node * n + i, mask=ok, other=0.0) + (1 - beta_1) * g
        tl.store(M_H + node * n + i, m, mask=ok)
        h = tl.load(H + node * n + i, mask=ok, other=0.0).to(tl.float64)
        if HYPERBOLIC:
            t = (step * m).to(tl.float64)
            t2 += t * t
            t1 += t * h * inverse
        else:
            h += step * m
            t2 += h * h
            tl.store(H + node * n + i, h.to(H.dtype.element_ty), mask=ok)
    if HYPERBOLIC:  # μ ← wrap(μ, t): the point y + α·m, as a tangent vector again
        length = tl.sqrt(t2)
        s = tl.where(length < 1e-9, 1.0, _sinh(length) / tl.maximum(length, 1e-300))
        half = _sinh(rho / 2)
        alpha = _sinh(rho) * (tl.exp(length) + tl.exp(-length)) / 2 + 2 * half * half * s * t1
        z2 = tl.zeros((BLOCK,), tl.float64)
        for i in range(n):
            m = tl.load(M_H + node * n + i, mask=ok, other=0.0)
            h = tl.load(H + node * n + i, mask=ok, other=0.0).to(tl.float64)
            z = s * (step * m).to(tl.float64) + alpha * h * inverse
            z2 += z * z
        size = tl.maximum(tl.sqrt(z2), 1e-300)
        new = tl.where(size < 1e-6, 1.0, tl.log(size + tl.sqrt(1 + z2)) / size)
        new = tl.minimum(new, radius / size)
        for i in range(n):
            m = tl.load(M_H + node * n + i, mask=ok, other=0.0)
            h = tl.load(H + node * n + i, mask=ok, other=0.0).to(tl.float64)
            z = s * (step * m).to(tl.float64) + alpha * h * inverse
            tl.store(H + node * n + i, (new * z).to(H.dtype.element_ty), mask=ok)
    else:
        shrink = tl.minimum(1.0, radius / tl.maximum(tl.sqrt(t2), 1e-300)).to(tl.float32)
        for i in range(n):
            at = node * n + i
            tl.store(H + at, shrink * tl.load(H + at, mask=ok, other=0.0), mask=ok)
    if not POINT:
        for i in range(COLS):
            at = node * COLS + i
            g = tl.load(GRAD_LS + at, mask=ok, other=0.0)
            tl.store(GRAD_LS + at, 0.0, mask=ok)
            m = beta_1 * tl.load(M_LS + at, mask=ok, other=0.0) + (1 - beta_1) * g
            v = beta_2 * tl.load(V_LS + at, mask=ok, other=0.0) + (1 - beta_2) * g * g
            tl.store(M_LS + at, m, mask=ok)
            tl.store(V_LS + at, v, mask=ok)
            old = tl.load(LS + at, mask=ok, other=0.0)
            change = rate_ls / correct_1 * m / (tl.sqrt(v / correct_2) + eps)
            tl.store(LS + at, tl.minimum(tl.maximum(old - change, low), high), mask=ok)


@triton.jit
def _adagrad(
    H, LS, S, GRAD_H, GRAD_LS, SUM_H, SUM_S, RATES, count, n: tl.constexpr,
    RADIUS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, EPS: tl.constexpr,
    BLOCK: tl.constexpr, COLS: tl.constexpr, HYPERBOLIC: tl.constexpr,
):  # fmt: skip
    """The paper's: steps in ``h`` and ``s``, ``|h|`` held to a ball, ``σ = softplus(clip s)``."""
    node = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = node < count
    rate = tl.load(RATES)
    rho2 = tl.zeros((BLOCK,), tl.float32)
    along = tl.zeros((BLOCK,), tl.float32)
    for i in range(n):
        h = tl.load(H + node * n + i, mask=ok, other=0.0)
        rho2 += h * h
        along += h * tl.load(GRAD_H + node * n + i, mask=ok, other=0.0)
    rho = tl.sqrt(rho2)
    grow = tl.where(rho < 1e-3, 1.0, _sinh(rho) / tl.maximum(rho, 1e-3))
    along = along / tl.maximum(rho2, _TINY) * (1 - grow)
    new2 = tl.zeros((BLOCK,), tl.float32)
    for i in range(n):
        at = node * n + i
        h = tl.load(H + at, mask=ok, other=0.0)
        g = tl.load(GRAD_H + at, mask=ok, other=0.0)
        tl.store(GRAD_H + at, 0.0, mask=ok)
        if HYPERBOLIC:
            g = grow * g + along * h
        total = tl.load(SUM_H + at, mask=ok, other=0.0) + g * g
        tl.store(SUM_H + at, total, mask=ok)
        h -= rate * g / (tl.sqrt(total) + EPS)
        tl.store(H + at, h, mask=ok)
        new2 += h * h
    shrink = tl.minimum(1.0, RADIUS / tl.maximum(tl.sqrt(new2), 1e-30))
    for i in range(n):
        at = node * n + i
        tl.store(H + at, shrink * tl.load(H + at, mask=ok, other=0.0), mask=ok)
    for i in range(COLS):
        at = node * COLS + i
        s = tl.load(S + at, mask=ok, other=0.0)
        g = tl.load(GRAD_LS + at, mask=ok, other=0.0)
        tl.store(GRAD_LS + at, 0.0, mask=ok)
        g *= tl.sigmoid(s) / tl.log(1 + tl.exp(s))
        g = tl.where((s < LOW) | (s > HIGH), 0.0, g)
        total = tl.load(SUM_S + at, mask=ok, other=0.0) + g * g
        tl.store(SUM_S + at, total, mask=ok)
        s -= rate * g / (tl.sqrt(total) + EPS)
        tl.store(S + at, s, mask=ok)
        clipped = tl.minimum(tl.maximum(s, LOW), HIGH)
        tl.store(LS + at, tl.log(tl.log(1 + tl.exp(clipped))), mask=ok)


# --- evaluation -----------------------------------------------------------------------------------


@triton.jit
def _energies(
    H, LS, SOURCES, T, OUT, count, n: tl.constexpr, draws: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_S: tl.constexpr,
    COLS: tl.constexpr, POINT: tl.constexpr, HYPERBOLIC: tl.constexpr,
):  # fmt: skip
    """Of a block of nodes for one source: minus the mean of ``f`` over its draws."""
    source = tl.program_id(1)
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = c < count
    c = tl.minimum(c, count - 1)
    a = tl.load(SOURCES + source + tl.zeros((1, 1), tl.int32))
    a_rho, a_inv, a_sinh, a_cosh_1, a_turn = _centre(H, a, n, COLS)
    total = tl.zeros((1, BLOCK), tl.float32)
    for first in range(0, draws, BLOCK_S):
        draw = first + tl.arange(0, BLOCK_S)[:, None]
        row = source * draws + tl.minimum(draw, draws - 1)
        length, s, y0, y1, alpha = _draw(H, T, a, row, a_rho, a_inv, a_sinh, a_cosh_1, n)
        (
            f, c_inv, c_cosh_1, c_turn, c_half_u2, c_sinh_delta, c_cosh_delta_1, c_beta,
            c_inverse, c_phi, c_slope, c_quadratic, c_w0, c_wm,
        ) = _seen(
            H, LS, T, a, row, a_rho, a_inv, length, s, y0, y1, alpha, c,
            n, COLS, POINT, HYPERBOLIC,
        )  # fmt: skip
        total -= tl.sum(tl.where(draw < draws, f, 0.0), 0, keep_dims=True)
    at = OUT + source.to(tl.int64) * count + c
    tl.store(at, total / draws, mask=inside)


# --- launches -------------------------------------------------------------------------------------


class Scratch(NamedTuple):
    """Room that a step needs; the gradients of draws are zero between steps."""

    draws: Tensor
    scores: Tensor
    grad_y: Tensor
    grad_y0: Tensor


def scratch(rows: int, candidates: int, n: int, device: torch.device) -> Scratch:
    """For so many draws in a step, each looked at by so many candidates."""
    draws, scores = (
        torch.empty(rows, n, device=device),
        torch.empty(rows, candidates, device=device),
    )
    sums = torch.zeros(rows, n, device=device), torch.zeros(rows, device=device)
    return Scratch(draws, scores, *sums)


def _flags(kind: Any, log_scale: Tensor) -> dict[str, Any]:
    """Which formulas, for a `hyperwrap.embedding.nodes.NodeType`."""
    columns = _RADIAL.value if kind.covariance == "radial" else log_scale.shape[1]
    return {"COLS": columns, "POINT": kind.point, "HYPERBOLIC": kind.hyperbolic}


def _thrown(
    kind: Any, h: Tensor, log_scale: Tensor, nodes: Tensor, noise: Tensor, each: int, out: Tensor
) -> Tensor:
    """The draws from ``nodes``, ``each`` rows of noise for one, and over again."""
    flags = _flags(kind, log_scale)
    del flags["HYPERBOLIC"]
    rows, n = noise.shape
    _throw[(triton.cdiv(rows, 128),)](
        h, log_scale, nodes, noise, out, rows, nodes.numel(), n, EACH=each, BLOCK=128, **flags
    )
    return out


def softmax_step(
    kind: Any,
    h: Tensor,
    log_scale: Tensor,
    edges: Tensor,
    negatives: Tensor,
    noise: Tensor,
    weight: Tensor,
    known: Any,
    grads: tuple[Tensor, Tensor],
    loss: Tensor,
    room: Scratch,
    *,
    tempered: bool,
) -> None:
    """`objective.softmax`: edges ``(2, g, e)``, negatives ``(g, k)``, noise ``(g·e, n)``; int32.

    Adds to the gradients, those of ``log(1 + loss)`` if ``tempered``, and fills in the losses;
    ``known`` is a `hyperwrap.embedding.known.Known`.
    """
    _, groups, in_group = edges.shape
    count, n, k = groups * in_group, h.shape[1], negatives.shape[1]
    flags = _flags(kind, log_scale)
    block_k = min(32, triton.next_power_of_2(k))
    grid = (groups, triton.cdiv(k, block_k))
    tile = {"K": k, "BLOCK_E": in_group, "BLOCK_K": block_k, **flags}
    draws = _thrown(kind, h, log_scale, edges[0], noise, 1, room.draws)
    inputs = (h, log_scale, edges, negatives, draws)
    a, b = known.multipliers
    _scores[grid](
        *inputs, known.table, room.scores, count, known.nodes, n,
        SHIFT=known.shift, A=a, B=b, **tile,
    )  # fmt: skip
    sums = (*grads, room.grad_y, room.grad_y0)
    every = triton.next_power_of_2(k + 1)
    _gradients[grid](
        *inputs, weight, room.scores, loss, *sums, count, n,
        ALL_K=every, TEMPERED=tempered, **tile,
    )  # fmt: skip
    _hand_on(inputs, sums, count, count, n, flags)


def hinge_step(
    kind: Any,
    h: Tensor,
    log_scale: Tensor,
    edges: Tensor,
    negatives: Tensor,
    noise: Tensor,
    weight: Tensor,
    margin: float,
    grads: tuple[Tensor, Tensor],
    loss: Tensor,
    room: Scratch,
) -> None:
    """`objective.hinge`: edges ``(2, g, e)``, negatives ``(g, e)``, noise ``(s·g·e, n)``; int32."""
    count, n = negatives.numel(), h.shape[1]
    draws = len(noise) // count
    flags = _flags(kind, log_scale)
    thrown = _thrown(kind, h, log_scale, edges[0], noise, 1, room.draws)
    inputs = (h, log_scale, edges, negatives, thrown)
    sums = (*grads, room.grad_y, room.grad_y0)
    block_e, block_s = 8, min(64, triton.next_power_of_2(draws))
    grid = (triton.cdiv(count, block_e), triton.cdiv(draws, block_s))
    _hinge[grid](
        *inputs, weight, loss.zero_(), *sums, count, n, draws, margin,
        BLOCK_E=block_e, BLOCK_S=block_s, **flags,
    )  # fmt: skip
    _hand_on(inputs, sums, draws * count, count, n, flags)


def _hand_on(
    inputs: tuple[Tensor, ...],
    sums: tuple[Tensor, ...],
    rows: int,
    edges: int,
    n: int,
    flags: dict[str, Any],
) -> None:
    h, log_scale, ends, _, draws = inputs
    _finish[(triton.cdiv(rows, 128),)](
        h, log_scale, ends, draws, *sums, rows, edges, n, BLOCK=128, **flags
    )


def adam_step(
    kind: Any,
    h: Tensor,
    log_scale: Tensor,
    grads: tuple[Tensor, Tensor],
    moments: tuple[Tensor, ...],
    rates: Tensor,
    bounds: tuple[float, float, float],
    betas: tuple[float, float],
    eps: float,
) -> None:
    """Moves all nodes and zeroes the gradients; ``rates``: of h, of log σ, two bias corrections.

    ``bounds`` are those of ``log σ``, and the largest radius.
    """
    count, n = h.shape
    _adam[(triton.cdiv(count, 128),)](
        h, log_scale, *grads, *moments, rates, count, n, *bounds, *betas, eps,
        BLOCK=128, **_flags(kind, log_scale) | {"COLS": log_scale.shape[1]},
    )  # fmt: skip


def adagrad_step(
    kind: Any,
    h: Tensor,
    log_scale: Tensor,
    grads: tuple[Tensor, Tensor],
    sums: tuple[Tensor, ...],
    rates: Tensor,
    bounds: tuple[float, float, float],
    eps: float,
) -> None:
    """The paper's update; ``sums``: ``s``, then of squares; ``bounds``: of ``s``, of radii."""
    count, n = h.shape
    s, *squares = sums
    low, high, radius = bounds
    _adagrad[(triton.cdiv(count, 128),)](
        h, log_scale, s, *grads, *squares, rates, count, n,
        RADIUS=radius, LOW=low, HIGH=high, EPS=eps,
        BLOCK=128, COLS=log_scale.shape[1], HYPERBOLIC=kind.hyperbolic,
    )  # fmt: skip


def energies(kind: Any, h: Tensor, log_scale: Tensor, sources: Tensor, noise: Tensor) -> Tensor:
    """Minus the mean score of every node, ``(b, N)``, over draws from sources ``(b,)``, int32.

    Noise is ``(b, s, n)``.
    """
    (count, n), (sources_count, draws, _) = h.shape, noise.shape
    out = torch.empty(sources_count, count, device=h.device)
    block, noise, log_scale = 128, noise.reshape(-1, n).float(), log_scale.float()
    thrown = _thrown(kind, h, log_scale, sources, noise, draws, torch.empty_like(noise))
    _energies[(triton.cdiv(count, block), sources_count)](
        h, log_scale, sources, thrown, out, count, n, draws,
        BLOCK=block, BLOCK_S=min(16, triton.next_power_of_2(draws)), **_flags(kind, log_scale),
    )  # fmt: skip
    return out
