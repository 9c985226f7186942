"""The VAE: properties over a registry of latent spaces, and witnesses that do not use it."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from math import log, pi
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributions import Bernoulli, MultivariateNormal, Normal
from torch.nn.functional import softplus
from torch.testing import assert_close

import hyperwrap as hw
from hyperwrap.errors import UserError
from hyperwrap.vae import Latent, mlp, model
from hyperwrap.vae.networks import dcgan

# --- the registry ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Space:
    """A latent space by its options, as given to `HyperbolicLatent` or `EuclideanLatent`."""

    geometry: str
    n: int
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return "-".join([self.geometry, f"n{self.n}", *(f"{a}={b}" for a, b in self.options)])

    def latent(self) -> Latent:
        kind: Any = {"hyperbolic": hw.HyperbolicLatent, "euclidean": hw.EuclideanLatent}[
            self.geometry
        ]
        return kind(self.n, **dict(self.options)).double()

    def encoded(self, *batch: int) -> Tensor:
        g = torch.Generator().manual_seed(zlib.crc32(str(self).encode()))
        outputs = self.latent().encoder_outputs
        return torch.randn(*batch, outputs, generator=g, dtype=torch.float64)


def hyperbolic(n: int, **options: Any) -> Space:
    return Space("hyperbolic", n, tuple(options.items()))


def euclidean(n: int, **options: Any) -> Space:
    return Space("euclidean", n, tuple(options.items()))


SPACES = [
    hyperbolic(1),
    hyperbolic(2),
    hyperbolic(5, c=0.25),
    hyperbolic(2, c=4.0, coordinates="tangent"),
    hyperbolic(5, coordinates="poincare"),
    hyperbolic(1, c=4.0, coordinates="poincare", covariance="full"),
    hyperbolic(2, covariance="scalar"),
    hyperbolic(5, covariance="scalar", c=4.0, coordinates="tangent"),
    hyperbolic(1, covariance="scalar", c=0.25),
    hyperbolic(2, covariance="full", c=0.25, coordinates="poincare"),
    hyperbolic(5, covariance="full"),
    hyperbolic(2, c=0.25, learn_c=True),
    hyperbolic(5, c=4.0, learn_c=True, covariance="full", coordinates="tangent"),
    hyperbolic(1, learn_c=True, covariance="scalar", coordinates="poincare"),
    euclidean(1),
    euclidean(2),
    euclidean(5),
    euclidean(2, covariance="scalar"),
    euclidean(1, covariance="full"),
    euclidean(5, covariance="full"),
]


@pytest.fixture(params=SPACES, ids=str)
def space(request: pytest.FixtureRequest) -> Space:
    return request.param


def vae_on(space: Space, data: int = 4, likelihood: Any = "bernoulli", beta: Any = 1.0) -> hw.VAE:
    """Small networks around the latent of ``space``, in float64."""
    latent = space.latent()
    outputs = data if likelihood == "bernoulli" else 2 * data
    encoder = mlp([data, 6, latent.encoder_outputs])
    decoder = mlp([latent.decoder_inputs, 6, outputs])
    return hw.VAE(encoder, decoder, latent, likelihood, beta).double()


def wide(vae: hw.VAE) -> hw.VAE:
    """With a posterior wider than the prior, so that importance weights have a small variance."""
    last, n = vae.encoder[-1], vae.latent.n  # pyright: ignore[reportIndexIssue]
    with torch.no_grad():
        last.weight.mul_(0.1)
        last.bias[..., n:] = 0.1 if vae.latent.covariance == "full" else 0.9
        if vae.latent.covariance == "full":
            diagonal = [n + i * (i + 3) // 2 for i in range(n)]
            last.bias[..., diagonal] = 0.9
    return vae


def bits(*shape: int) -> Tensor:
    return torch.randint(0, 2, shape, dtype=torch.float64)


# --- latent spaces -----------------------------------------------------------------------------


def test_the_encoder_gives_n_numbers_for_the_centre_and_those_of_sigma(space: Space):
    n, sigma = space.n, dict(space.options).get("covariance", "diagonal")
    expected = n + {"diagonal": n, "scalar": 1, "full": n * (n + 1) // 2}[sigma]
    assert space.latent().encoder_outputs == expected


def test_samples_and_densities_have_the_shapes_of_torch(space: Space):
    latent = space.latent()
    z, log_q, log_p = latent.rsample(space.encoded(3, 4), (2,))
    assert z.shape == (2, 3, 4, space.n + (space.geometry == "hyperbolic"))
    assert log_q.shape == log_p.shape == (2, 3, 4)
    assert latent.for_decoder(z).shape == (2, 3, 4, latent.decoder_inputs)
    assert z.dtype == log_q.dtype == log_p.dtype == torch.float64


def test_log_q_is_the_density_of_the_posterior(space: Space):
    latent, encoded = space.latent(), space.encoded(50)
    z, log_q, _ = latent.rsample(encoded, (3,))
    assert_close(log_q, latent.posterior(encoded).log_prob(z), rtol=1e-8, atol=1e-8)


def test_log_p_is_the_density_of_the_prior(space: Space):
    latent = space.latent()
    z, _, log_p = latent.rsample(space.encoded(50), (3,))
    assert_close(log_p, latent.prior().log_prob(z), rtol=1e-7, atol=1e-7)


def test_the_prior_is_standard_at_the_origin(space: Space):
    latent = space.latent()
    origin = latent.centre(torch.zeros(1, latent.encoder_outputs, dtype=torch.float64))
    expected = torch.tensor([-0.5 * space.n * log(2 * pi)])
    assert_close(latent.prior().log_prob(origin).float(), expected)


def test_sigma_is_softplus_of_the_encoder(space: Space):
    latent, encoded = space.latent(), space.encoded(6)
    q: Any = latent.posterior(encoded)
    if space.geometry == "euclidean" and latent.covariance != "full":
        covariance = torch.diag_embed(q.variance)
    else:
        covariance = q.covariance_matrix
    s, n = encoded[:, space.n :], space.n
    low = torch.zeros(6, n, n, dtype=torch.float64)
    if latent.covariance == "full":
        at = 0
        for i in range(n):
            for j in range(i + 1):
                low[:, i, j] = softplus(s[:, at]) if i == j else s[:, at]
                at += 1
    else:
        low = torch.diag_embed(softplus(s).expand(6, n))
    assert_close(covariance, low @ low.mT)


def test_centre_is_the_mean_of_the_posterior(space: Space):
    latent, encoded = space.latent(), space.encoded(7)
    assert torch.equal(latent.centre(encoded), latent.posterior(encoded).mean)


def test_samples_reach_the_encoder_with_a_finite_gradient(space: Space):
    latent, encoded = space.latent(), space.encoded(9).requires_grad_()
    z, log_q, log_p = latent.rsample(encoded, (2,))
    total = latent.for_decoder(z).sum() + log_q.sum() - log_p.sum()
    wanted = [encoded, *latent.parameters()]
    grads = torch.autograd.grad(total, wanted)
    assert all(g.isfinite().all() and (g != 0).any() for g in grads)


def test_c_is_learned_from_where_it_was_put():
    for c in (0.01, 0.25, 1.0, 4.0, 30.0, 100.0):
        latent = hw.HyperbolicLatent(2, c=c, learn_c=True)
        assert_close(latent.c, torch.tensor(c), check_dtype=False, rtol=1e-5, atol=0)
        assert [name for name, _ in latent.named_parameters()] == ["raw_c"]
    assert not list(hw.HyperbolicLatent(2, c=4.0).parameters())


def test_a_geodesic_ends_at_its_ends(space: Space):
    latent = space.latent()
    a, b = latent.centre(space.encoded(2, 8)).unbind(0)
    zero = torch.zeros(8, dtype=torch.float64)
    assert_close(latent.geodesic(a, b, zero), a)
    assert_close(latent.geodesic(a, b, zero + 1), b)


def test_a_geodesic_runs_at_constant_speed(space: Space):
    latent = space.latent()
    a, b = latent.centre(space.encoded(2, 8)).unbind(0)
    t = torch.linspace(0, 1, 6, dtype=torch.float64).unsqueeze(-1)
    path, length = latent.geodesic(a, b, t), latent.distance(a, b)
    assert_close(latent.distance(path[1:], path[:-1]), length.expand(5, 8) / 5)
    assert_close(latent.distance(path, a), length * t)


def test_the_decoder_is_given_the_coordinates_asked_for():
    z = hw.lorentz.exp0(torch.randn(6, 3, dtype=torch.float64), c=4.0)
    given = {
        name: hw.HyperbolicLatent(3, c=4.0, coordinates=name).for_decoder(z)
        for name in ("hyperboloid", "tangent", "poincare")
    }
    assert torch.equal(given["hyperboloid"], z)
    assert_close(hw.lorentz.exp0(given["tangent"], c=4.0), z)
    assert_close(hw.charts.from_poincare(given["poincare"], c=4.0), z)
    assert torch.equal(hw.EuclideanLatent(4).for_decoder(z), z)


# --- the objective -----------------------------------------------------------------------------


def test_the_elbo_from_scratch(space: Space):
    for likelihood, num_samples in (("bernoulli", 1), ("gaussian", 3)):
        vae, x = vae_on(space, likelihood=likelihood, beta=3.0), bits(5, 4)
        torch.manual_seed(1)
        bound = vae.elbo(x, num_samples)
        torch.manual_seed(1)
        q = vae.latent.posterior(vae.encoder(x))
        z = q.rsample(torch.Size((num_samples,)))
        kl = (q.log_prob(z) - vae.latent.prior().log_prob(z)).mean(0)
        output = vae.decoder(vae.latent.for_decoder(z))
        if likelihood == "bernoulli":
            law: Any = Bernoulli(logits=output)
        else:
            mean, s = output.split(4, -1)
            law = Normal(mean, softplus(s + 0.5413))
        reconstruction = law.log_prob(x).sum(-1).mean(0)
        assert_close(bound.reconstruction, reconstruction)
        assert_close(bound.kl, kl, rtol=1e-7, atol=1e-7)
        assert_close(bound.elbo, reconstruction - kl, rtol=1e-7, atol=1e-7)


def test_beta_weighs_the_kl_in_the_objective_only():
    for beta in (0.0, 0.5, 4.0):
        vae, x = vae_on(hyperbolic(2), beta=beta), bits(5, 4)
        torch.manual_seed(1)
        trained = vae.objective(x)
        torch.manual_seed(1)
        plain = vae.elbo(x)
        assert_close(trained.elbo, plain.reconstruction - beta * plain.kl)
        assert_close(trained.reconstruction, plain.reconstruction)
        assert_close(trained.kl, plain.kl)
        torch.manual_seed(1)
        assert_close(vae.objective(x, beta=torch.tensor(1.0)).elbo, plain.elbo)


def stacked_vae(stack: int, beta: Any = 1.0, data: int = 4) -> hw.VAE:
    latent = hw.HyperbolicLatent(2)
    encoder = mlp([data, 6, latent.encoder_outputs], stack=(stack,))
    decoder = mlp([latent.decoder_inputs, 6, data], stack=(stack,))
    return hw.VAE(encoder, decoder, latent, beta=beta).double()


def test_each_model_of_a_stack_has_its_own_beta():
    for batch, num_samples in ((3, 1), (3, 2), (5, 1)):  # as many rows as models, and others
        beta = torch.tensor([0.1, 1.0, 4.0])
        vae, x = stacked_vae(3, beta), bits(3, batch, 4)
        torch.manual_seed(1)
        got = vae.objective(x, num_samples)
        torch.manual_seed(1)
        reconstruction, kl = vae._terms(x, num_samples)
        expected = torch.logsumexp(reconstruction - beta.view(3, 1) * kl, 0) - log(num_samples)
        assert_close(got.elbo, expected)


def test_more_samples_raise_the_importance_weighted_bound(space: Space):
    vae, x = vae_on(space), bits(200, 4)
    with torch.no_grad():
        one = vae.objective(x.repeat(20, 1)).elbo.mean()
        many = vae.objective(x.repeat(20, 1), 20).elbo.mean()
        score = vae.score(x, 50)
    assert many > one
    assert (score.log_likelihood >= score.elbo - 1e-9).all()
    assert score.log_likelihood.mean() > score.elbo.mean()


# --- models whose likelihood is known ------------------------------------------------------------


class LinearGaussian(nn.Module):
    """``x = Az + b + σε``; as a decoder its output is the mean and the ``s`` of ``σ``."""

    def __init__(self, n: int, data: int, sigma: float = 0.7) -> None:
        super().__init__()
        self.A = nn.Parameter(torch.randn(data, n, dtype=torch.float64))
        self.b = nn.Parameter(torch.randn(data, dtype=torch.float64))
        self.sigma = sigma

    def forward(self, z: Tensor) -> Tensor:
        mean = z @ self.A.T + self.b
        s = inverse_softplus(torch.tensor(self.sigma, dtype=torch.float64)) - 0.5413
        return torch.cat([mean, s.expand_as(mean)], -1)

    def marginal(self) -> MultivariateNormal:
        noise = self.sigma**2 * torch.eye(len(self.b), dtype=torch.float64)
        return MultivariateNormal(self.b, self.A @ self.A.T + noise)

    def posterior(self) -> tuple[Tensor, Tensor]:
        """``W`` and ``L`` of ``p(z|x) = N(W(x − b), LLᵀ)``."""
        eye = torch.eye(self.A.shape[1], dtype=torch.float64)
        covariance = torch.linalg.inv(eye + self.A.T @ self.A / self.sigma**2)
        return covariance @ self.A.T / self.sigma**2, torch.linalg.cholesky(covariance)


class ExactEncoder(nn.Module):
    """The exact posterior of a `LinearGaussian`, blurred by ``width`` and moved by ``shift``."""

    def __init__(self, model: LinearGaussian, width: float = 1.0, shift: float = 0.0) -> None:
        super().__init__()
        self.model, self.width, self.shift = model, width, shift

    def forward(self, x: Tensor) -> Tensor:
        W, L = self.model.posterior()
        L, n = self.width * L, len(L)
        entries = torch.stack(
            [
                inverse_softplus(L[i, j]) if i == j else L[i, j]
                for i in range(n)
                for j in range(i + 1)
            ]
        )
        h = (x - self.model.b) @ W.T + self.shift
        return torch.cat([h, entries.expand(*x.shape[:-1], -1)], -1)


def inverse_softplus(y: Tensor) -> Tensor:
    return y.expm1().log()


LINEAR: dict[str, Latent] = {
    "Euclidean plane": hw.EuclideanLatent(2, covariance="full"),
    "Euclidean line": hw.EuclideanLatent(1, covariance="full"),
    "hyperbolic line": hw.HyperbolicLatent(
        1, covariance="full", coordinates="tangent"
    ),  # it is flat
    "curved line": hw.HyperbolicLatent(1, covariance="full", coordinates="tangent", c=4.0),
}


@pytest.mark.parametrize("latent", LINEAR.values(), ids=LINEAR.keys())
def test_with_the_exact_posterior_every_sample_gives_the_likelihood(latent: Latent):
    linear = LinearGaussian(latent.n, 3)
    vae = hw.VAE(ExactEncoder(linear), linear, latent, "gaussian").double()
    x = linear.marginal().sample(torch.Size((10,)))
    expected = linear.marginal().log_prob(x)
    assert_close(vae.elbo(x).elbo, expected)
    assert_close(vae.log_likelihood(x, 2), expected)


@pytest.mark.parametrize("latent", LINEAR.values(), ids=LINEAR.keys())
def test_with_another_posterior_the_likelihood_is_approached_from_below(latent: Latent):
    linear = LinearGaussian(latent.n, 3)
    encoder = ExactEncoder(linear, width=1.3, shift=0.1)
    vae = hw.VAE(encoder, linear, latent, "gaussian").double()
    x = linear.marginal().sample(torch.Size((200,)))
    exact = linear.marginal().log_prob(x).mean()
    gaps = [(exact - vae.log_likelihood(x, s).mean()).item() for s in (1, 10, 4000)]
    assert gaps[0] > max(gaps[1], 0.02)
    assert abs(gaps[2]) < 5e-3


@pytest.mark.parametrize("space", [hyperbolic(2), hyperbolic(2, c=4.0, covariance="full")], ids=str)
def test_the_likelihood_by_quadrature_on_the_plane(space: Space):
    vae, x = wide(vae_on(space)), bits(6, 4)
    grid = torch.linspace(-7, 7, 201, dtype=torch.float64)
    v = torch.cartesian_prod(grid, grid)
    z = hw.lorentz.exp0(v, c=vae.latent.c)  # pyright: ignore[reportArgumentType]
    weights = -0.5 * v.square().sum(-1) - log(2 * pi) + 2 * (grid[1] - grid[0]).log()
    with torch.no_grad():
        logits = vae.decoder(vae.latent.for_decoder(z))
    log_joint = Bernoulli(logits=logits).log_prob(x.unsqueeze(1)).sum(-1) + weights
    assert_close(vae.log_likelihood(x, 20_000), log_joint.logsumexp(-1), rtol=0, atol=0.03)


def test_scoring_in_chunks_is_scoring(monkeypatch: pytest.MonkeyPatch):
    vae, x = wide(vae_on(hyperbolic(2))), bits(5, 4)
    whole = vae.score(x, 4000)
    sizes: list[int] = []
    terms = vae._terms
    monkeypatch.setattr(vae, "_terms", lambda x, s: sizes.append(s) or terms(x, s))
    monkeypatch.setattr(model, "_MOST_ELEMENTS", 20 * 300)
    chunked = vae.score(x, 4000)
    assert sizes == [300] * 13 + [100]
    assert_close(chunked.elbo, whole.elbo, rtol=0, atol=0.3)
    assert_close(chunked.log_likelihood, whole.log_likelihood, rtol=0, atol=0.1)
    monkeypatch.setattr(model, "_MOST_ELEMENTS", 1)
    assert vae.score(x, 3).elbo.shape == (5,)
    assert not chunked.elbo.requires_grad


def test_chunks_of_one_seed_are_the_samples_put_together(monkeypatch: pytest.MonkeyPatch):
    vae, x = vae_on(hyperbolic(2)), bits(5, 4)
    torch.manual_seed(1)
    log_w = torch.cat([r - kl for r, kl in (vae._terms(x, s) for s in (3, 3, 1))])
    monkeypatch.setattr(model, "_MOST_ELEMENTS", 20 * 3)
    torch.manual_seed(1)
    score = vae.score(x, 7)
    assert_close(score.elbo, log_w.mean(0))
    assert_close(score.log_likelihood, log_w.exp().mean(0).log())


# --- stacks ------------------------------------------------------------------------------------


def test_each_model_of_a_stack_gets_the_gradient_it_gets_alone():
    """The flat batch of all draws the noise of the stack; a model alone keeps its own rows."""
    m, batch, beta = 3, 5, 2.0
    stack, x = stacked_vae(m, beta), bits(m, batch, 4)
    torch.manual_seed(1)
    together = stack.objective(x).elbo
    together.mean(-1).sum().backward()
    for i in range(m):
        alone = vae_on(hyperbolic(2), beta=beta)
        own = {n: p if n == "beta" else p[i] for n, p in stack.state_dict().items()}
        alone.load_state_dict(own)
        torch.manual_seed(1)
        elbo = alone.objective(x.flatten(0, 1)).elbo.view(m, batch)[i]
        assert_close(elbo, together[i])
        elbo.mean().backward()
        for single, many in zip(alone.parameters(), stack.parameters(), strict=True):
            assert many.grad is not None
            assert_close(single.grad, many.grad[i])


def test_samples_of_a_stack_are_decoded_by_their_own_model():
    vae, x = stacked_vae(3), bits(3, 5, 4)
    torch.manual_seed(1)
    bound = vae.elbo(x, 4)
    torch.manual_seed(1)
    z = vae.latent.rsample(vae.encoder(x), (4,)).z
    logits = torch.stack([vae.decoder(vae.latent.for_decoder(draw)) for draw in z])
    assert_close(bound.reconstruction, Bernoulli(logits=logits).log_prob(x).sum(-1).mean(0))


def test_data_shared_by_a_stack_is_scored_by_every_model():
    vae, x = stacked_vae(3), bits(5, 4)
    torch.manual_seed(1)
    shared = vae.elbo(x).elbo
    torch.manual_seed(1)
    assert_close(shared, vae.elbo(x.expand(3, 5, 4)).elbo)


# --- what it is for ----------------------------------------------------------------------------


def test_shapes_of_what_comes_out(space: Space):
    for likelihood in ("bernoulli", "gaussian"):
        vae, x = vae_on(space, likelihood=likelihood), bits(3, 4)
        z = vae.embed(x)
        assert z.shape == (3, space.n + (space.geometry == "hyperbolic"))
        assert vae.generate(z).shape == vae.reconstruct(x).shape == (3, 4)
        path = vae.interpolate(z[0], z[1], 6)
        assert path.shape == (6, *z.shape[1:])
        assert vae.generate(path).shape == (6, 4)
        for score in (*vae.score(x, 7), vae.log_likelihood(x, 7), *vae.elbo(x, 2)):
            assert score.shape == (3,)


def test_what_is_generated_is_the_mean():
    vae, z = vae_on(hyperbolic(2)), hw.lorentz.exp0(torch.randn(5, 2).double())
    assert_close(vae.generate(z), Bernoulli(logits=vae.decoder(z)).mean)
    vae = vae_on(hyperbolic(2), likelihood="gaussian")
    assert_close(vae.generate(z), vae.decoder(z)[:, :4])


def test_many_paths_are_generated_at_once():
    for likelihood in ("bernoulli", "gaussian"):
        vae, x = vae_on(hyperbolic(2), likelihood=likelihood), bits(4, 4)
        a, b = vae.embed(x), vae.embed(1 - x)
        path = vae.interpolate(a, b, 3)
        assert path.shape == (3, 4, 3)
        assert_close(vae.generate(path), torch.stack([vae.generate(z) for z in path]))


def test_an_interpolation_holds_both_ends_and_is_even(space: Space):
    vae = vae_on(space)
    a, b = vae.latent.centre(space.encoded(2, 3)).unbind(0)
    path = vae.interpolate(a, b, 5)
    assert_close(path[0], a)
    assert_close(path[-1], b)
    steps = vae.latent.distance(path[1:], path[:-1])
    assert_close(steps, (vae.latent.distance(a, b) / 4).expand(4, 3))


def test_an_interpolation_keeps_the_precision_of_its_ends():
    vae = vae_on(euclidean(1))
    a, b = torch.zeros(1).double(), torch.ones(1).double()
    assert_close(vae.interpolate(a, b, 4)[:, 0], torch.arange(4).double() / 3, rtol=0, atol=1e-12)


def image_vae(likelihood: Any) -> hw.VAE:
    """Two small convolutional networks for images ``(B, 1, 8, 8)``."""
    latent, channels = hw.HyperbolicLatent(2), 1 if likelihood == "bernoulli" else 2
    encoder = nn.Sequential(
        nn.Conv2d(1, 4, 4, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, latent.encoder_outputs),
    )
    decoder = nn.Sequential(
        nn.Linear(latent.decoder_inputs, 64),
        nn.Unflatten(-1, (4, 4, 4)),
        nn.ReLU(),
        nn.ConvTranspose2d(4, channels, 4, 2, 1),
    )
    return hw.VAE(encoder, decoder, latent, likelihood)


@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
def test_images(likelihood: str, monkeypatch: pytest.MonkeyPatch):
    vae, x = image_vae(likelihood), torch.rand(3, 1, 8, 8)
    torch.manual_seed(1)
    bound = vae.elbo(x, 2)
    torch.manual_seed(1)
    z, log_q, log_p = vae.latent.rsample(vae.encoder(x), (2,))
    output = torch.stack([vae.decoder(draw) for draw in z])
    if likelihood == "bernoulli":
        law: Any = Bernoulli(logits=output, validate_args=False)
    else:
        law = Normal(output[:, :, :1], softplus(output[:, :, 1:] + 0.5413))
    reconstruction = law.log_prob(x.expand(2, 3, 1, 8, 8)).flatten(2).sum(-1).mean(0)
    assert_close(bound.elbo, reconstruction - (log_q - log_p).mean(0), rtol=1e-4, atol=1e-4)
    monkeypatch.setattr(model, "_MOST_ELEMENTS", 3 * 64 * 2)
    assert vae.log_likelihood(x, 5).shape == (3,)
    assert vae.reconstruct(x).shape == x.shape
    assert_close(vae.generate(z[0]), law.mean[0])
    assert vae.generate(vae.interpolate(z[0, 0], z[0, 1], 4)).shape == (4, 1, 8, 8)


def test_many_paths_of_images_are_generated_at_once():
    for likelihood in ("bernoulli", "gaussian"):
        vae, x = image_vae(likelihood), torch.rand(3, 1, 8, 8)
        path = vae.interpolate(vae.embed(x), vae.embed(1 - x), 4)
        assert vae.generate(path).shape == (4, 3, 1, 8, 8)


# --- on disk -----------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "model.safetensors"


def same_model(a: hw.VAE, b: hw.VAE) -> bool:
    own, other = a.state_dict(), b.state_dict()
    return (
        repr(a.latent) == repr(b.latent)
        and a.likelihood == b.likelihood
        and own.keys() == other.keys()
        and all(
            torch.equal(t, other[name]) and t.dtype == other[name].dtype for name, t in own.items()
        )
    )


@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
def test_a_model_is_loaded_as_it_was_saved(space: Space, likelihood: str, path: Path):
    vae, x = vae_on(space, likelihood=likelihood, beta=2.5), bits(5, 4)
    with torch.no_grad():
        for p in vae.parameters():
            p.add_(0.1)
    vae.save(path)
    before = torch.get_rng_state()
    again = hw.VAE.load(path)
    assert torch.equal(torch.get_rng_state(), before)
    assert same_model(vae, again)
    assert not again.training
    assert torch.equal(again.embed(x), vae.embed(x))
    assert torch.equal(again.reconstruct(x), vae.reconstruct(x))
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_stack_is_loaded_as_it_was_saved(path: Path):
    vae = stacked_vae(3, torch.tensor([0.1, 1.0, 4.0]))
    vae.save(path)
    assert same_model(vae, hw.VAE.load(str(path)))
    assert same_model(vae, hw.VAE.load(path.parent))  # the folder of a run


def test_a_model_of_images_is_loaded_with_its_running_means(path: Path):
    latent, x = hw.HyperbolicLatent(2), torch.rand(4, 1, 8, 8)
    vae = hw.VAE(*dcgan(latent, (1, 8, 8)), latent, "gaussian")
    vae.elbo(x)
    vae.save(path)
    again = hw.VAE.load(path)
    assert same_model(vae, again)
    assert torch.equal(again.reconstruct(x), vae.eval().reconstruct(x))


def test_modules_of_ones_own_are_given(path: Path):
    vae, x = image_vae("bernoulli"), torch.rand(3, 1, 8, 8)
    vae.save(path)
    givens: list[dict[str, Any]] = [{}, {"encoder": vae.encoder}, {"decoder": vae.decoder}]
    for given in givens:
        with pytest.raises(UserError) as error:
            hw.VAE.load(path, **given)
        name = "decoder" if "encoder" in given else "encoder"
        assert str(error.value) == (
            f"Expected `{name}`, as the one saved in {path} was not made by hyperwrap; got "
            f"None. Pass it: VAE.load(path, {name}=...)."
        )
    other = image_vae("bernoulli")
    again = hw.VAE.load(path, encoder=other.encoder, decoder=other.decoder)
    assert again.encoder is other.encoder
    assert same_model(vae, again)
    assert torch.equal(again.reconstruct(x), vae.reconstruct(x))


def foreign(path: Path, content: str) -> None:
    """A file that `VAE.save` did not write, or not to its end."""
    vae = vae_on(hyperbolic(2))
    vae.save(path)
    whole = path.read_bytes()
    if content == "text":
        path.write_text("mine")
    elif content == "other tensors":
        save_file({"beta": torch.ones(())}, path)
    elif content == "other metadata":
        save_file(vae.state_dict(), path, {"vae": '{"encoder": 3}'})
    elif content == "an unknown network":
        text = '{"encoder": {"network": "transformer"}, "decoder": {}, "latent": {}}'
        save_file(vae.state_dict(), path, {"vae": text})
    else:
        path.write_bytes(whole[: int(float(content) * len(whole))])


@pytest.mark.parametrize(
    "content",
    ["text", "other tensors", "other metadata", "an unknown network", "0", "0.01", "0.5", "0.99"],
)
def test_a_file_that_is_no_model(content: str, path: Path):
    foreign(path, content)
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"^Expected a model in .*\. Use a file that `VAE\.save`"):
        hw.VAE.load(path)
    assert path.read_bytes() == before


def test_a_model_that_is_not_there(path: Path):
    with pytest.raises(UserError, match=r"^Expected a model in .*No such file"):
        hw.VAE.load(path)


def test_modules_of_other_shapes(path: Path):
    vae_on(hyperbolic(2)).save(path)
    with pytest.raises(UserError, match=r"^Expected .* to hold this model; its parameters have"):
        hw.VAE.load(path, encoder=mlp([4, 7, 4]))


def test_a_model_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=r"^Expected to write .*; it failed \("):
        vae_on(hyperbolic(2)).save(tmp_path / "file" / "model.safetensors")
    assert (tmp_path / "file").read_text() == "mine"


# --- bad input ---------------------------------------------------------------------------------


def any_vae(**options: Any) -> hw.VAE:
    return hw.VAE(nn.Linear(4, 4), nn.Linear(3, 4), hw.HyperbolicLatent(2), **options)


BAD_OPTIONS: dict[str, tuple[Callable[[], Any], str]] = {
    "no dimension": (lambda: hw.HyperbolicLatent(0), "Expected `n` ≥ 1; got 0."),
    "a negative dimension": (lambda: hw.EuclideanLatent(-2), "Expected `n` ≥ 1; got -2."),
    "unknown covariance": (
        lambda: hw.HyperbolicLatent(2, covariance="banded"),  # pyright: ignore[reportArgumentType]
        "Expected `covariance` diagonal, scalar or full; got 'banded'.",
    ),
    "unknown covariance, Euclidean": (
        lambda: hw.EuclideanLatent(2, covariance="banded"),  # pyright: ignore[reportArgumentType]
        "Expected `covariance` diagonal, scalar or full; got 'banded'.",
    ),
    "unknown coordinates": (
        lambda: hw.HyperbolicLatent(2, coordinates="klein"),  # pyright: ignore[reportArgumentType]
        "Expected `coordinates` hyperboloid, tangent, poincare; got 'klein'.",
    ),
    "flat": (
        lambda: hw.HyperbolicLatent(2, c=0.0),
        "Expected `c` > 0 (the curvature is −c); got 0.0.",
    ),
    "spherical, learned": (
        lambda: hw.HyperbolicLatent(2, c=-1.0, learn_c=True),
        "Expected `c` > 0 (the curvature is −c); got -1.0.",
    ),
    "c of NaN": (
        lambda: hw.HyperbolicLatent(2, c=float("nan")),
        "Expected `c` > 0 (the curvature is −c); got nan.",
    ),
    "unknown likelihood": (
        lambda: any_vae(likelihood="student"),
        "Expected `likelihood` bernoulli or gaussian or poisson or negative binomial, or an "
        "object of class Likelihood; got "
        "'student'.",
    ),
}


@pytest.mark.parametrize(("make", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS.keys())
def test_a_bad_option_is_answered_in_one_sentence(make: Callable[[], Any], message: str):
    with pytest.raises(ValueError, match=r"Expected") as error:
        make()
    assert str(error.value) == message


class Constant(nn.Module):
    """A network that gives zeros of one size, whatever it is given."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, x: Tensor) -> Tensor:
        return x.new_zeros(*x.shape[:-1], self.outputs)


def vae_with(encoder: int, decoder: int, latent: Latent, **options: Any) -> hw.VAE:
    return hw.VAE(Constant(encoder), Constant(decoder), latent, **options)


# Each of these is broadcast in silence, or fails in the words of another library.
BAD_USE: dict[str, Callable[[], Any]] = {
    "diagonal, encoder of a scalar": lambda: vae_with(3, 4, hw.HyperbolicLatent(2)).elbo(
        bits(5, 4)
    ),
    "scalar, encoder of a diagonal": lambda: vae_with(
        4, 4, hw.EuclideanLatent(2, covariance="scalar")
    ).elbo(bits(5, 4)),
    "too few encoder outputs": lambda: vae_with(2, 4, hw.HyperbolicLatent(2)).elbo(bits(5, 4)),
    "logits of another size": lambda: vae_with(4, 1, hw.HyperbolicLatent(2)).elbo(bits(5, 4)),
    "mean and scale of another size": lambda: vae_with(
        4, 2, hw.HyperbolicLatent(2), likelihood="gaussian"
    ).elbo(bits(5, 4)),
    "no samples for the ELBO": lambda: any_vae().elbo(torch.ones(5, 4), 0),
    "no samples for the likelihood": lambda: any_vae().log_likelihood(torch.ones(5, 4), 0),
    "layers without sizes": lambda: mlp([4]),
}


@pytest.mark.parametrize("use", BAD_USE.values(), ids=BAD_USE.keys())
def test_a_bad_shape_or_number_is_answered_in_one_sentence(use: Callable[[], Any]):
    with pytest.raises(ValueError, match=r"^Expected .*; got .*\.$"):
        use()
