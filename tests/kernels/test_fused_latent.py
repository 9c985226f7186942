"""The latent of a VAE in one step, beside the same from the distributions and in float64."""

from math import sqrt

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

import hyperwrap as hw
from hyperwrap import lorentz
from hyperwrap.kernels import cpu as fused

CASES = [
    (n, covariance, c)
    for n, c in [(1, 1.0), (2, 1.0), (2, 4.0), (5, 0.25), (8, 1.0)]
    for covariance in ("diagonal", "scalar")
]


@pytest.fixture(params=CASES, ids=lambda case: "-".join(map(str, case)))
def latent(request: pytest.FixtureRequest) -> hw.HyperbolicLatent:
    n, covariance, c = request.param
    return hw.HyperbolicLatent(n, covariance=covariance, c=c)


def encoded_for(latent: hw.HyperbolicLatent, *batch: int, spread: float = 1.0) -> Tensor:
    h = spread * torch.randn(*batch, latent.encoder_outputs, dtype=torch.float64)
    return (h / sqrt(latent.n)).requires_grad_()


def noise_for(latent: hw.HyperbolicLatent, *shape: int) -> Tensor:
    return torch.randn(*shape, latent.n, dtype=torch.float64)


def step(
    latent: hw.HyperbolicLatent, encoded: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return fused.sample_and_score(encoded, noise, sqrt(latent.c))  # pyright: ignore


def plain(
    latent: hw.HyperbolicLatent, encoded: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The formulas that autograd differentiates, in place of the derivatives written out."""
    return fused._sample_and_score_plain(encoded, noise, sqrt(latent.c))  # pyright: ignore


def gradient(outputs: tuple[Tensor, ...], encoded: Tensor) -> Tensor:
    """Of the sum of all outputs."""
    return torch.autograd.grad([t.sum() for t in outputs], encoded, retain_graph=True)[0]


# --- derivatives -------------------------------------------------------------------------------


def test_first_and_second_derivatives(latent: hw.HyperbolicLatent):
    encoded, noise = encoded_for(latent, 3), noise_for(latent, 2, 3)
    assert gradcheck(lambda e: step(latent, e, noise), encoded)
    assert gradgradcheck(lambda e: step(latent, e, noise), encoded)


@pytest.mark.parametrize("what", ["centre", "noise", "both", "inward"])
def test_derivatives_where_a_length_is_zero(latent: hw.HyperbolicLatent, what: str):
    encoded, noise = encoded_for(latent, 3).detach(), noise_for(latent, 3)
    if what in ("centre", "both"):
        encoded[:, : latent.n] = 0
    if what in ("noise", "both"):
        noise.zero_()
    if what == "inward":  # z is the origin, but for rounding
        sigma = torch.nn.functional.softplus(encoded[:, latent.n :])
        noise = -encoded[:, : latent.n] / sigma
        assert step(latent, encoded, noise)[0][:, 1:].abs().max() < 1e-12
    encoded.requires_grad_()
    assert gradcheck(lambda e: step(latent, e, noise), encoded)
    ours, theirs = (f(latent, encoded, noise) for f in (step, plain))
    assert_close(gradient(ours, encoded), gradient(theirs, encoded), rtol=1e-9, atol=1e-9)


def test_torch_func_gives_the_same_gradient(latent: hw.HyperbolicLatent):
    encoded, noise = encoded_for(latent, 4), noise_for(latent, 4)

    def total(e: Tensor, eps: Tensor) -> Tensor:
        z, log_q, log_p = step(latent, e, eps)
        return z.sum() + 2 * log_q.sum() - 3 * log_p.sum()

    (expected,) = torch.autograd.grad(total(encoded, noise), encoded)
    by_row = torch.func.vmap(torch.func.grad(total))(encoded.detach(), noise)
    assert_close(by_row, expected, rtol=1e-9, atol=1e-9)


# --- beside the distributions ------------------------------------------------------------------


def by_distributions(
    latent: hw.HyperbolicLatent, encoded: Tensor, shape: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    z, log_q = latent.posterior(encoded).rsample_and_log_prob(shape)
    return z, log_q, latent.double().prior().log_prob(z)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3)], ids=str)
def test_the_same_draw_the_same_densities_the_same_gradients(
    latent: hw.HyperbolicLatent, shape: tuple[int, ...]
):
    encoded = encoded_for(latent, 4, spread=3.0)
    torch.manual_seed(1)
    ours = latent.rsample(encoded, shape)
    torch.manual_seed(1)
    theirs = by_distributions(latent, encoded, shape)
    weights = [torch.randn_like(t) for t in theirs]
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b, rtol=1e-9, atol=1e-9)
    a, b = (torch.autograd.grad(outputs, encoded, weights)[0] for outputs in (ours, theirs))
    assert_close(a, b, rtol=1e-8, atol=1e-8 * b.abs().max().item())


def test_outputs_need_not_all_be_used(latent: hw.HyperbolicLatent):
    encoded, noise = encoded_for(latent, 4), noise_for(latent, 4)
    both = (f(latent, encoded, noise) for f in (step, plain))
    for ours, theirs in zip(*both, strict=True):
        a, b = gradient((ours,), encoded), gradient((theirs,), encoded)
        assert_close(a, b, rtol=1e-8, atol=1e-8)


# --- float32, far out --------------------------------------------------------------------------

RADII = [0.0, 1e-20, 1e-3, 1.0, 5.0, 20.0, 40.0, 44.5, 60.0, 80.0]


def far_out(n: int, radius: float, sigma: float, c: float) -> tuple[Tensor, Tensor]:
    """Encoder outputs with centres at distance ``radius/√c``, and noise, both float32 numbers."""
    direction = torch.nn.functional.normalize(torch.randn(200, n), dim=-1)
    s = torch.full((200, n), sigma / sqrt(c)).expm1().log()
    return torch.cat([radius / sqrt(c) * direction, s], -1), torch.randn(200, n)


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("sigma", [1e-4, 0.1, 1.0])
@pytest.mark.parametrize("c", [1.0, 4.0])
def test_float32_values_and_gradients_at_every_radius(radius: float, sigma: float, c: float):
    latent = hw.HyperbolicLatent(5, c=c)
    encoded, noise = far_out(5, radius, sigma, c)
    exact, narrow = encoded.double().requires_grad_(), encoded.requires_grad_()
    truth, ours = plain(latent, exact, noise.double()), step(latent, narrow, noise)
    assert_relative(ours[0], truth[0], 2e-5)
    for a, b in zip(ours[1:], truth[1:], strict=True):
        assert_close(a.double(), b, rtol=2e-6, atol=2e-6)
    unit = truth[0][:, :1].detach()  # of z, which is as large as e^80
    for a, b, size in zip(ours, truth, (unit, 1.0, 1.0), strict=True):
        assert_relative(gradient((a / size,), narrow), gradient((b / size,), exact), 2e-5)


def assert_relative(a: Tensor, b: Tensor, bound: float) -> None:
    """The rows of ``a`` and ``b`` differ by this share of the largest entry."""
    error = (a - b).abs().amax(-1) / b.abs().amax(-1)
    assert error.max() < bound


@pytest.mark.parametrize("radius", [40.0, 44.5, 60.0, 80.0])
def test_the_steps_one_by_one_keep_their_gradients_far_out_too(radius: float):
    """Products like ``N·z₀`` overflow at radius 44: the gradient was 0 from there on."""

    def log_p(encoded: Tensor, noise: Tensor) -> Tensor:
        z = lorentz.wrap(lorentz.exp0(encoded[:, :5]), noise)
        rho_squared, log_sinhc = lorentz.squared_radius_and_log_det(z)
        return -0.5 * rho_squared - 4 * log_sinhc

    encoded, noise = far_out(5, radius, 1.0, 1.0)
    exact, narrow = encoded.double().requires_grad_(), encoded.requires_grad_()
    truth, ours = log_p(exact, noise.double()), log_p(narrow, noise)
    assert_relative(gradient((ours,), narrow), gradient((truth,), exact), 2e-5)


# --- shapes and dtypes -------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [(), (0,), (4,), (5, 4), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (2, 3)], ids=str)
def test_shapes(latent: hw.HyperbolicLatent, batch: tuple[int, ...], shape: tuple[int, ...]):
    encoded = torch.randn(*batch, latent.encoder_outputs, requires_grad=True)
    z, log_q, log_p = latent.rsample(encoded, shape)
    assert z.shape == (*shape, *batch, latent.n + 1)
    assert log_q.shape == log_p.shape == (*shape, *batch)
    found = gradient((z, log_q - log_p), encoded)
    assert found.shape == encoded.shape
    assert torch.isfinite(found).all()


def test_a_view_is_as_good_as_a_copy(latent: hw.HyperbolicLatent):
    encoded, noise = encoded_for(latent, 3), noise_for(latent, 3)
    strided = encoded.detach().t().contiguous().t().requires_grad_()
    for a, b in zip(step(latent, strided, noise), step(latent, encoded, noise), strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened_before_the_geometry(
    latent: hw.HyperbolicLatent, dtype: torch.dtype
):
    encoded = encoded_for(latent, 4).detach().to(dtype).requires_grad_()
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16):
        ours = latent.rsample(encoded, (2,))
    torch.manual_seed(1)
    wide = latent.rsample(encoded.float(), (2,))
    for a, b in zip(ours, wide, strict=True):
        assert a.dtype == torch.float32
        assert_close(a, b)
    assert gradient(ours, encoded).dtype == dtype


# --- what it is for ----------------------------------------------------------------------------
