"""On a GPU the answers are those of the CPU."""

from pathlib import Path

import pytest
import torch
from torch.distributions import kl_divergence

import hyperwrap as hw
from hyperwrap.vae import mlp
from hyperwrap.vae.train import Trainer, Training

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def _law(device: str, radius: float, n: int = 5) -> hw.WrappedNormal:
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(50, n, generator=generator)
    h = h / h.norm(dim=-1, keepdim=True) * radius
    a = torch.randn(50, n, n, generator=generator) / 3
    covariance = a @ a.mT + 0.1 * torch.eye(n)
    loc = hw.lorentz.exp0(h).to(device)
    return hw.WrappedNormal(loc, covariance_matrix=covariance.to(device))


@pytest.mark.parametrize("radius", [0.0, 3.0, 12.0, 40.0])
def test_scores_agree_with_the_cpu(radius: float) -> None:
    here, there = _law("cpu", radius), _law("cuda", radius)
    z = here.sample((3,))
    torch.testing.assert_close(
        there.log_prob(z.cuda()).cpu(), here.log_prob(z), rtol=1e-6, atol=1e-6
    )


def test_drawn_points_have_the_density_that_comes_with_them() -> None:
    law = _law("cuda", 3.0)
    z, log_q = law.rsample_and_log_prob((100,))
    torch.testing.assert_close(law.log_prob(z), log_q, rtol=1e-3, atol=1e-3)
    assert law.support.check(z).all()


def test_gradients_agree_with_the_cpu() -> None:
    z = _law("cpu", 2.0).sample()
    found = {}
    for device in ("cpu", "cuda"):
        h = torch.full((50, 5), 0.3, device=device, requires_grad=True)
        scale = torch.full((50, 5), 0.7, device=device, requires_grad=True)
        law = hw.WrappedNormal(hw.lorentz.exp0(h), scale)
        found[device] = torch.autograd.grad(law.log_prob(z.to(device)).sum(), (h, scale))
    for a, b in zip(found["cpu"], found["cuda"], strict=True):
        torch.testing.assert_close(b.cpu(), a, rtol=1e-5, atol=1e-5)


def test_entropy_and_divergence_agree_with_the_cpu() -> None:
    here, there = _law("cpu", 2.0), _law("cuda", 2.0)
    torch.testing.assert_close(there.entropy().cpu(), here.entropy())
    prior = hw.WrappedNormal(hw.lorentz.origin(5), 1.0)
    prior_there = hw.WrappedNormal(hw.lorentz.origin(5, device="cuda"), 1.0)
    torch.testing.assert_close(
        kl_divergence(there, prior_there).cpu(), kl_divergence(here, prior), rtol=1e-5, atol=1e-5
    )


def test_a_step_can_be_captured_in_a_graph() -> None:
    prior = hw.WrappedNormal(hw.lorentz.origin(3, device="cuda"), 1.0, validate_args=False)
    h = torch.zeros(10, 3, device="cuda", requires_grad=True)

    def step() -> torch.Tensor:
        law = hw.WrappedNormal(hw.lorentz.exp0(h), 0.5, validate_args=False)
        z, log_q = law.rsample_and_log_prob()
        (grad,) = torch.autograd.grad((log_q - prior.log_prob(z)).sum(), h)
        return grad

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        grad = step()
    graph.replay()
    first = grad.clone()
    graph.replay()
    assert torch.isfinite(grad).all()
    assert not torch.equal(first, grad)


@pytest.mark.parametrize("n", [1, 2, 5, 20, 100])
@pytest.mark.parametrize("k", [0.25, 1.0, 4.0])
def test_latent_kernel_agrees_with_the_distributions(n: int, k: float) -> None:
    from hyperwrap.kernels.latent import sample_and_score

    encoded = torch.randn(37, 2 * n).cuda()
    encoded[0, :n] = 0
    noise, weights = torch.randn(37, n).cuda(), torch.randn(37, n + 3).cuda()
    noise[1] = 0

    def by_kernel(e: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return sample_and_score(e, noise, k**0.5)

    def by_formula(e: torch.Tensor) -> tuple[torch.Tensor, ...]:
        e, scale = e.double(), torch.nn.functional.softplus(e[:, n:].double())
        v = scale * noise.double()
        z, log_sinhc = hw.lorentz.wrap_and_log_det(hw.lorentz.exp0(e[:, :n], k=k), v, k=k)
        base = torch.distributions.Normal(0.0, scale).log_prob(v).sum(-1)
        prior = hw.WrappedNormal(
            hw.lorentz.origin(n, k=k, dtype=z.dtype, device=z.device), 1.0, k=k
        )
        return z, base - (n - 1) * log_sinhc, prior.log_prob(z)

    results = []
    for f in (by_kernel, by_formula):
        e = encoded.clone().requires_grad_()
        z, log_q, log_p = f(e)
        total = (torch.cat([z, log_q[:, None], log_p[:, None]], -1) * weights).sum()
        (grad,) = torch.autograd.grad(total, e)
        results.append([z.float(), log_q.float(), log_p.float(), grad.float()])
    for a, b in zip(*results, strict=True):
        assert (a - b).norm() <= 1e-5 * b.norm()


@pytest.mark.parametrize(
    "latent", [hw.Hyperbolic(3), hw.Euclidean(3)], ids=["hyperbolic", "vanilla"]
)
def test_training_by_graph_learns_and_resumes(latent: hw.Hyperbolic, tmp_path) -> None:
    data = (torch.rand(64, 20, generator=torch.Generator().manual_seed(0)) < 0.3).float().cuda()

    def trainer(folder: Path) -> Trainer:
        torch.manual_seed(0)
        stack = (2,)
        encoder = mlp([20, 16, latent.encoder_outputs], stack=stack)
        vae = hw.VAE(encoder, mlp([latent.decoder_inputs, 16, 20], stack=stack), latent).cuda()
        return Trainer(vae, lambda step: data.expand(2, 64, 20), Training(steps=300), folder)

    whole = trainer(tmp_path / "whole")
    reports = list(whole.run(report_every=50, save_every=100))
    assert min(reports[-1].elbo) > max(reports[0].elbo)
    broken = trainer(tmp_path / "broken")
    for report in broken.run(report_every=50, save_every=100):
        if report.step == 150:
            break
    resumed = trainer(tmp_path / "broken")
    assert resumed.step == 100
    list(resumed.run(report_every=50, save_every=100))
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
