"""On a GPU the answers are those of the CPU."""

import pytest
import torch
from torch.distributions import kl_divergence

import hyperwrap as hw

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
