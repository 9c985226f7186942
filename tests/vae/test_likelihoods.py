"""Likelihoods against those of torch, and a likelihood of one's own."""

from dataclasses import dataclass
from math import inf, log, nan, pi
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.distributions import Bernoulli, Normal, Poisson
from torch.distributions import NegativeBinomial as OfTorch
from torch.nn.functional import softplus
from torch.testing import assert_close

import hyperwrap as hw
from hyperwrap.errors import UserError
from hyperwrap.vae import Gaussian, Likelihood, NegativeBinomial, mlp
from hyperwrap.vae.likelihoods import PerColumn, likelihood, suited

EVENTS = [(5,), (1, 3, 2)]
LAWS: dict[str, Likelihood] = {
    "bernoulli": hw.vae.Bernoulli(),
    "gaussian": Gaussian(),
    "gaussian with a large min_scale": Gaussian(0.7),
    "poisson": hw.vae.Poisson(),
    "negative binomial": hw.vae.NegativeBinomial(),
}


def of_torch(law: Likelihood, output: Tensor, x: Tensor, event_dim: int) -> Tensor:
    """The log-density by a distribution of torch."""
    if isinstance(law, Gaussian):
        mean, s = output.chunk(2, -event_dim)
        own: Any = Normal(mean, softplus(s + 0.5413).clamp_min(law.min_scale))
    elif isinstance(law, hw.vae.Poisson | NegativeBinomial):
        parts = output.flatten(-event_dim).unflatten(-1, (-1, x[0].numel()))
        x = x.flatten(1)
        event_dim, mean = 1, x.sum(-1, keepdim=True) * parts[..., 0, :].softmax(-1)
        own = Poisson(mean, validate_args=False)
        if isinstance(law, NegativeBinomial):
            r = softplus(parts[..., 1, :] + 0.5413)
            own = OfTorch(r, logits=mean.log() - r.log(), validate_args=False)
    else:
        own = Bernoulli(logits=output, validate_args=False)
    return own.log_prob(x.expand(own.mean.shape)).flatten(-event_dim).sum(-1)


def data(law: Likelihood, event: tuple[int, ...], *more: int) -> tuple[Tensor, Tensor]:
    """What a decoder may give, ``(*more, 4, ...)``, and data in [0, 1]."""
    output = 2 * torch.randn(*more, 4, *law.outputs(event), dtype=torch.float64)
    return output.requires_grad_(), torch.rand(4, *event, dtype=torch.float64)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_values_and_derivatives_are_those_of_torch(law: Likelihood):
    for event in EVENTS:
        output, x = data(law, event, 2)
        got, expected = law.log_prob(output, x, len(event)), of_torch(law, output, x, len(event))
        assert_close(got, expected)
        pull = torch.randn_like(got)
        slopes = (grad(each, output, pull, retain_graph=True)[0] for each in (got, expected))
        assert_close(*slopes)
        for check in (gradcheck, gradgradcheck):
            assert check(lambda o: law.log_prob(o, x, len(event)), [output])  # noqa: B023
            assert check(lambda x: law.log_prob(output, x, len(event)), [x.requires_grad_()])  # noqa: B023
        assert_close(law.mean(output, len(event)).shape, torch.Size([2, 4, *event]))


@pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated:DeprecationWarning")
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_likelihoods_pass_through_the_transforms_of_torch(law: Likelihood):
    output, x = data(law, (5,))
    (slope,) = grad(law.log_prob(output, x, 1).sum(), output)
    output, tangent = output.detach(), torch.randn_like(output)
    assert_close(torch.func.grad(lambda o: law.log_prob(o, x, 1).sum())(output), slope)
    each = torch.func.vmap(torch.func.grad(lambda o, x: law.log_prob(o, x, 1)))(output, x)
    assert_close(each, slope)
    moved = torch.func.jvp(lambda o: law.log_prob(o, x, 1), (output,), (tangent,))[1]
    assert_close(moved, (slope * tangent).sum(-1))


def test_bernoulli_is_finite_at_large_logits():
    logits = torch.tensor([[-200.0, 200.0, -1e4, 1e4]], requires_grad=True)
    got = hw.vae.Bernoulli().log_prob(logits, torch.tensor([[1.0, 0.0, 0.0, 1.0]]), 1)
    assert_close(got, torch.tensor([-400.0]))
    (slope,) = grad(got.sum(), logits)
    assert_close(slope, torch.tensor([[1.0, -1.0, 0.0, 0.0]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_of_a_gaussian_at_and_around_its_smallest_scale(dtype: torch.dtype):
    scales = torch.tensor([-50.0, -7.5, -7.44, -7.4, -1.0, 0.0, 3.0, 19.4, 19.5, 60.0])
    mean = torch.tensor([0.3]).expand(10)
    output = torch.stack([mean, scales], -1).to(dtype).requires_grad_()
    x, law = torch.zeros(10, 1, dtype=dtype), Gaussian()
    got, expected = law.log_prob(output, x, 1), of_torch(law, output, x, 1)
    assert_close(got, expected)
    slope, wanted = (grad(y.sum(), output)[0] for y in (got, expected))
    assert_close(slope, wanted)
    assert slope[:2, 1].tolist() == [0, 0]  # at the floor
    assert (slope[2:, 1] != 0).all()


def test_the_scale_of_a_gaussian_starts_at_one_and_has_a_floor():
    x = torch.zeros(1, 1)
    for s, sigma in ((0.0, 1.0), (-50.0, 1e-3)):
        at = Gaussian().log_prob(torch.tensor([[0.0, s]]), x, 1).item()
        assert at == pytest.approx(-0.5 * log(2 * pi) - log(sigma), abs=1e-4)
    for wrong in (0.0, -1.0, inf, nan):
        with pytest.raises(ValueError, match=r"^Expected `min_scale` > 0 and finite; got"):
            Gaussian(wrong)


# --- by name -------------------------------------------------------------------------------------


def test_a_name_is_short_for_an_object():
    assert likelihood("bernoulli") == hw.vae.Bernoulli()
    assert likelihood("gaussian") == Gaussian(1e-3)
    assert likelihood("negative binomial") == NegativeBinomial()
    with pytest.raises(ValueError, match=r"^Expected `likelihood` bernoulli or gaussian or po"):
        likelihood("student")


def test_the_likelihood_that_suits_the_data():
    assert suited(torch.tensor([0.0, 1.0])) == hw.vae.Bernoulli()
    assert suited(torch.tensor([0.0, 1.1])) == Gaussian()
    with pytest.raises(UserError, match=r"^Expected values in \[0, 1\].*; got 0 to 1\.1\. Scale"):
        hw.vae.Bernoulli().require(torch.tensor([0.0, 1.1]))


def test_a_saved_model_remembers_its_likelihood(tmp_path: Path):
    law, x = Gaussian(0.5), torch.randn(7, 3)
    vae = hw.VAE(mlp([3, 4]), mlp([3, 6]), hw.HyperbolicLatent(2), law)
    vae.save(tmp_path / "model.safetensors")
    again = hw.VAE.load(tmp_path)
    assert again.likelihood == law
    bounds = []
    for each in (vae, again):
        torch.manual_seed(1)
        bounds.append(each.elbo(x).elbo)
    assert torch.equal(*bounds)


# --- of one's own --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counts(Likelihood):
    """Poisson: the decoder gives log-rates."""

    def outputs(self, event: tuple[int, ...]) -> tuple[int, ...]:
        return event

    def log_prob(self, output: Tensor, x: Tensor, event_dim: int) -> Tensor:
        law = Poisson(output.exp(), validate_args=False)
        return law.log_prob(x).flatten(-event_dim).sum(-1)

    def mean(self, output: Tensor, event_dim: int) -> Tensor:
        return output.exp()

    def require(self, x: Any) -> None:
        if x.min() < 0:
            raise UserError(f"Expected counts; got {x.min():.4g}.")


def test_a_likelihood_of_ones_own(tmp_path: Path):
    latent = hw.HyperbolicLatent(2, coordinates="tangent")
    vae = hw.VAE(mlp([3, 4]), mlp([2, 3]), latent, Counts())
    x = torch.tensor([[0.0, 3.0, 1.0]])
    assert vae.elbo(x, 2).elbo.isfinite().all()
    assert_close(vae.generate(vae.embed(x)), vae.decoder(latent.for_decoder(vae.embed(x))).exp())
    vae.save(tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"^Expected `likelihood`, as the one saved in"):
        hw.VAE.load(tmp_path)
    assert hw.VAE.load(tmp_path, likelihood=Counts()).likelihood == Counts()


# --- what all rows share -------------------------------------------------------------------------


@pytest.mark.parametrize("law", [Gaussian(), NegativeBinomial()], ids=repr)
def test_one_spread_per_column_is_that_of_every_row(law: Any):
    shared = PerColumn(law, 5).double()
    torch.nn.init.normal_(shared.s)
    first = torch.randn(2, 4, 5, dtype=torch.float64)
    x = torch.randint(0, 9, (4, 5), dtype=torch.float64)
    whole = torch.cat([first, shared.s.expand_as(first)], -1)
    assert_close(shared.log_prob(first, x, 1), law.log_prob(whole, x, 1))
    assert_close(shared.mean(first, 1), law.mean(whole, 1))


def test_a_model_with_a_spread_per_column_is_saved_and_loaded(tmp_path: Path):
    latent, law = hw.HyperbolicLatent(2), PerColumn(Gaussian(0.1), 5)
    options: Any = {"dropout": 0.2, "beside_linear": True}
    model = hw.VAE(mlp([5, 8, 4], **options), mlp([3, 8, 5], **options), latent, law)
    torch.nn.init.normal_(law.s)
    model.save(tmp_path / "model.safetensors")
    loaded = hw.VAE.load(tmp_path / "model.safetensors")
    x = torch.randn(6, 5)
    assert_close(loaded.reconstruct(x), model.eval().reconstruct(x))
    assert_close(loaded.likelihood.s, law.s)  # pyright: ignore


def test_counts_are_judged_given_their_total():
    law = hw.vae.Poisson()
    x, logits = torch.tensor([[3.0, 0.0, 7.0]]), torch.randn(1, 3)
    assert_close(law.mean(logits, 1).sum(-1), torch.ones(1))
    assert_close(law.log_prob(logits, x, 1), law.log_prob(logits + 5, x, 1))
    assert law.log_prob(logits, torch.zeros(1, 3), 1).item() == pytest.approx(0, abs=1e-4)
    assert_close(law.for_encoder(x), law.for_encoder(2 * x))
