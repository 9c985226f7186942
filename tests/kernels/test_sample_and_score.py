"""A draw and its densities in one step, beside the plain formulas and the distributions."""

from math import sqrt

import torch
from registry import for_each
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

import hyperwrap as hw
from hyperwrap.kernels import cpu

DIMENSIONS = (1, 2, 5)
Outputs = tuple[Tensor, ...]


def inputs(n: int, *batch: int, spread: float = 1.0) -> tuple[Tensor, Tensor]:
    h = spread * torch.randn(*batch, n, dtype=torch.float64) / sqrt(n)
    scale = 0.2 + torch.rand(*batch, n, dtype=torch.float64)
    return h.requires_grad_(), scale.requires_grad_()


def noise_for(n: int, *shape: int) -> Tensor:
    return torch.randn(*shape, n, dtype=torch.float64)


def step(h: Tensor, scale: Tensor, noise: Tensor, prior: float = 1.0) -> Outputs:
    return cpu.sample_and_score(h, scale, noise, prior)  # pyright: ignore[reportReturnType]


def plain(h: Tensor, scale: Tensor, noise: Tensor, prior: float = 1.0) -> Outputs:
    """The formulas that autograd differentiates, in place of the derivatives written out."""
    return cpu.plain_scores(h, scale, noise, prior)


def gradients(outputs: Outputs, *of: Tensor) -> Outputs:
    """Of the sum of all outputs."""
    total = sum(t.sum() for t in outputs)
    return torch.autograd.grad(total, of, retain_graph=True, materialize_grads=True)  # pyright: ignore


# --- derivatives -------------------------------------------------------------------------------


@for_each(prior=[1.0, 0.3])
def test_first_and_second_derivatives(prior: float):
    for n in DIMENSIONS:
        (h, scale), noise = inputs(n, 2), noise_for(n, 2, 2)
        assert gradcheck(lambda h, s: step(h, s, noise, prior), (h, scale))  # noqa: B023
        assert gradgradcheck(lambda h, s: step(h, s, noise, prior), (h, scale), fast_mode=True)  # noqa: B023


def test_derivatives_without_a_prior():
    (h, scale), noise = inputs(3, 4), noise_for(3, 4)
    assert cpu.sample_and_score(h, scale, noise)[2] is None
    assert gradcheck(lambda h, s: cpu.sample_and_score(h, s, noise)[:2], (h, scale))
    assert gradgradcheck(
        lambda h, s: cpu.sample_and_score(h, s, noise)[:2], (h, scale), fast_mode=True
    )


@for_each(what=["centre", "noise", "both", "inward"])
def test_derivatives_where_a_length_is_zero(what: str):
    for n in DIMENSIONS:
        (h, scale), noise = inputs(n, 3), noise_for(n, 3)
        h, scale = h.detach(), scale.detach()
        if what in ("centre", "both"):
            h.zero_()
        if what in ("noise", "both"):
            noise.zero_()
        if what == "inward":  # z is the origin, but for rounding
            noise = -h / scale
            assert step(h, scale, noise)[0][:, 1:].abs().max() < 1e-12
        h.requires_grad_()
        scale.requires_grad_()
        assert gradcheck(lambda h, s: step(h, s, noise), (h, scale))  # noqa: B023
        ours, theirs = (gradients(f(h, scale, noise), h, scale) for f in (step, plain))
        for a, b in zip(ours, theirs, strict=True):
            assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_torch_func_gives_the_same_gradient():
    (h, scale), noise = inputs(4, 5), noise_for(4, 5)

    def total(h: Tensor, scale: Tensor, noise: Tensor) -> Tensor:
        z, log_q, log_p = step(h, scale, noise)
        return z.sum() + 2 * log_q.sum() - 3 * log_p.sum()

    expected = torch.autograd.grad(total(h, scale, noise), (h, scale))
    by_row = torch.func.vmap(torch.func.grad(total, argnums=(0, 1)))
    for a, b in zip(by_row(h.detach(), scale.detach(), noise), expected, strict=True):
        assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_outputs_need_not_all_be_used():
    (h, scale), noise = inputs(3, 4), noise_for(3, 4)
    for i in range(3):
        ours, theirs = (f(h, scale, noise)[i] for f in (step, plain))
        found = (gradients((out,), h, scale) for out in (ours, theirs))
        for a, b in zip(*found, strict=True):
            assert_close(a, b, rtol=1e-8, atol=1e-8)


# --- beside the distributions ------------------------------------------------------------------


@for_each(c=[1.0, 4.0, 0.25], sample_shape=[(), (1,), (2, 3)])
def test_one_step_is_the_same_as_two(c: float, sample_shape: tuple[int, ...]):
    """`rsample_against` beside a law given by its point, and the prior's own `log_prob`."""
    for n in DIMENSIONS:
        h, scale = inputs(n, 4, spread=3.0)
        prior = hw.WrappedNormal(tangent=torch.zeros(n, dtype=torch.float64), scale=0.7, c=c)
        torch.manual_seed(1)
        ours = hw.WrappedNormal(tangent=h, scale=scale, c=c).rsample_against(prior, sample_shape)
        torch.manual_seed(1)
        law = hw.WrappedNormal(hw.lorentz.exp0(h, c=c), scale, c=c)
        z, log_q = law.rsample_and_log_prob(sample_shape)
        theirs = z, log_q, prior.log_prob(z)
        weights = [torch.randn_like(t) for t in theirs]
        for a, b in zip(ours, theirs, strict=True):
            assert_close(a, b, rtol=1e-9, atol=1e-9)
        found = (torch.autograd.grad(outputs, (h, scale), weights) for outputs in (ours, theirs))
        for a, b in zip(*found, strict=True):
            assert_close(a, b, rtol=1e-8, atol=1e-8 * b.abs().max().item())


def test_any_other_law_may_be_scored_against():
    h, scale = inputs(2, 4)
    other = hw.WrappedNormal(tangent=torch.ones(2, dtype=torch.float64), scale=0.5)
    z, log_q, log_p = hw.WrappedNormal(tangent=h, scale=scale).rsample_against(other)
    assert_close(log_p, other.log_prob(z))
    assert log_q.shape == (4,)


# --- float32, far out --------------------------------------------------------------------------

RADII = [0.0, 1e-20, 1e-3, 1.0, 5.0, 20.0, 40.0, 44.5, 60.0, 80.0]


@for_each(radius=RADII, sigma=[1e-4, 0.1, 1.0])
def test_float32_values_and_gradients_at_every_radius(radius: float, sigma: float):
    h = radius * torch.nn.functional.normalize(torch.randn(200, 5), dim=-1)
    scale, noise = torch.full((200, 5), sigma), torch.randn(200, 5)
    exact = h.double().requires_grad_(), scale.double().requires_grad_()
    narrow = h.requires_grad_(), scale.requires_grad_()
    truth, ours = plain(*exact, noise.double()), step(*narrow, noise)
    assert_relative(ours[0], truth[0], 2e-5)
    for a, b in zip(ours[1:], truth[1:], strict=True):
        assert_close(a.double(), b, rtol=2e-6, atol=2e-6)
    unit = truth[0][:, :1].detach()  # of z, which is as large as e^80
    for a, b, size in zip(ours, truth, (unit, 1.0, 1.0), strict=True):
        found = gradients((a / size,), *narrow), gradients((b / size,), *exact)
        low, high = (torch.cat(both, -1) for both in found)
        assert_relative(low, high, 2e-5)


def assert_relative(a: Tensor, b: Tensor, bound: float) -> None:
    """The rows of ``a`` and ``b`` differ by this share of the largest entry."""
    error = (a - b).abs().amax(-1) / b.abs().amax(-1)
    assert error.max() < bound


@for_each(radius=[40.0, 44.5, 60.0, 80.0])
def test_the_steps_one_by_one_keep_their_gradients_far_out_too(radius: float):
    """Products like ``N·z₀`` overflow at radius 44: the gradient was 0 from there on."""

    def log_p(h: Tensor, noise: Tensor) -> Tensor:
        return cpu.radial_log_prob(hw.lorentz.wrap(hw.lorentz.exp0(h), noise), 1.0)

    h = radius * torch.nn.functional.normalize(torch.randn(200, 5), dim=-1)
    noise = torch.randn(200, 5)
    exact, narrow = h.double().requires_grad_(), h.requires_grad_()
    truth, ours = log_p(exact, noise.double()), log_p(narrow, noise)
    assert_relative(gradients((ours,), narrow)[0], gradients((truth,), exact)[0], 2e-5)


# --- shapes and dtypes -------------------------------------------------------------------------


def test_shapes():
    latents = [
        hw.HyperbolicLatent(n, covariance=covariance)  # pyright: ignore[reportArgumentType]
        for n in (1, 2, 5)
        for covariance in ("diagonal", "scalar", "full")
    ]
    for latent in latents:
        for batch in ((), (0,), (4,), (5, 4), (2, 3, 4)):
            for shape in ((), (1,), (2, 3)):
                encoded = torch.randn(*batch, latent.encoder_outputs, requires_grad=True)
                z, log_q, log_p = latent.rsample(encoded, shape)
                assert z.shape == (*shape, *batch, latent.n + 1)
                assert log_q.shape == log_p.shape == (*shape, *batch)
                (found,) = gradients((z, log_q - log_p), encoded)
                assert found.shape == encoded.shape
                assert torch.isfinite(found).all()


def test_a_view_is_as_good_as_a_copy():
    (h, scale), noise = inputs(3, 4), noise_for(3, 4)
    strided = h.detach().t().contiguous().t().requires_grad_()
    for a, b in zip(step(strided, scale, noise), step(h, scale, noise), strict=True):
        assert_close(a, b)


@for_each(dtype=[torch.float16, torch.bfloat16])
def test_half_precision_is_widened_before_the_geometry(dtype: torch.dtype):
    latent = hw.HyperbolicLatent(3)
    encoded = torch.randn(4, latent.encoder_outputs).to(dtype).requires_grad_()
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16):
        ours = latent.rsample(encoded, (2,))
    torch.manual_seed(1)
    wide = latent.rsample(encoded.float(), (2,))
    for a, b in zip(ours, wide, strict=True):
        assert a.dtype == torch.float32
        assert_close(a, b)
    assert gradients(ours, encoded)[0].dtype == dtype
