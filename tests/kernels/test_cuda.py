"""On a GPU the answers are those of the CPU."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributions import kl_divergence

import hyperwrap as hw
from hyperwrap.embedding import train as embedding
from hyperwrap.embedding.evaluate import energies, evaluate
from hyperwrap.embedding.layout import Layout
from hyperwrap.embedding.nodes import NodeType, node_type
from hyperwrap.embedding.optimisers import Gradient
from hyperwrap.embedding.recipe import Recipe
from hyperwrap.embedding.train import EmbeddingTask
from hyperwrap.training import Loop, finished
from hyperwrap.vae import mlp
from hyperwrap.vae.train import Training, trainer

pytestmark = pytest.mark.gpu


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


@pytest.mark.parametrize("prior", [None, 1.0, 0.3])
def test_a_draw_and_its_densities_agree_with_the_formulas(prior: float | None) -> None:
    from hyperwrap.kernels import cpu
    from hyperwrap.kernels.triton_wrapped import sample_and_score

    for n in (1, 2, 5, 20, 100):
        encoded, noise = torch.randn(37, 2 * n).cuda(), torch.randn(3, 37, n).cuda()
        encoded[0, :n], noise[:, 1] = 0, 0
        weights = torch.randn(3, 37, n + 3).cuda()
        results = []
        for f, dtype in ((sample_and_score, torch.float32), (cpu.plain_scores, torch.float64)):
            e = encoded.to(dtype).requires_grad_()
            h, scale = e[:, :n], torch.nn.functional.softplus(e[:, n:])
            z, *scores = (t for t in f(h, scale, noise.to(dtype), prior) if t is not None)
            whole = torch.cat([z, torch.stack(scores, -1)], -1)
            total = (whole * weights[..., : whole.shape[-1]]).sum()
            results.append([t.float() for t in (whole, *torch.autograd.grad(total, e))])
        for a, b in zip(*results, strict=True):
            assert (a - b).norm() <= 1e-5 * b.norm()


@pytest.mark.parametrize(
    "latent", [hw.HyperbolicLatent(3), hw.EuclideanLatent(3)], ids=["hyperbolic", "vanilla"]
)
def test_training_by_graph_learns_and_resumes(latent: hw.HyperbolicLatent, tmp_path) -> None:
    data = (torch.rand(64, 20, generator=torch.Generator().manual_seed(0)) < 0.3).float().cuda()

    def looped(folder: Path) -> Loop[Any]:
        torch.manual_seed(0)
        stack = (2,)
        encoder = mlp([20, 16, latent.encoder_outputs], stack=stack)
        vae = hw.VAE(encoder, mlp([latent.decoder_inputs, 16, 20], stack=stack), latent).cuda()
        settings = Training(steps=300)
        return trainer(vae, lambda step: data.expand(2, 64, 20), settings, folder, report_every=50)

    whole = looped(tmp_path / "whole")
    reports = list(whole.run())
    assert min(reports[-1].numbers["elbo"]) > max(reports[0].numbers["elbo"])
    broken = looped(tmp_path / "broken")
    for _, _ in zip(range(2), broken.run(), strict=False):
        broken.save()
    resumed = looped(tmp_path / "broken")
    assert resumed.task.step == 100
    finish(resumed)
    for name, t in whole.task.state().items():
        torch.testing.assert_close(resumed.task.state()[name], t, rtol=1e-4, atol=1e-5)


def finish(loop: Loop[Any]) -> None:
    for _ in loop.run():
        pass


# --- embeddings -------------------------------------------------------------------------------

DEVICE = "cuda"
NODES = 40
KINDS = [
    node_type(geometry, covariance)
    for geometry in ("hyperbolic", "euclidean")
    for covariance in ("diagonal", "scalar", "none")
]
KINDS.append(node_type(covariance="radial"))
RECIPES = {
    "softmax": Recipe(epochs=8, batch=24, group=8, negatives=20),
    "tempered": Recipe(objective="tempered", epochs=8, batch=24, group=8, negatives=20),
    "hinge": Recipe(
        objective="hinge", epochs=8, batch=24, group=8, draws=7, margin=3.0, radius=4.3, decay=False
    ),
}
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)
each_recipe = pytest.mark.parametrize("objective", RECIPES)
CASES = [*((kind, 5) for kind in KINDS), *((KINDS[0], n) for n in (1, 2, 20)), (KINDS[-1], 2)]
each_case = pytest.mark.parametrize(  # every kernel is compiled again for each
    ("kind", "n"), CASES, ids=[f"{kind}-{n}" for kind, n in CASES]
)


def _edges(count: int = 200) -> torch.Tensor:
    """From the second half of the nodes to the first."""
    half, generator = NODES // 2, torch.Generator().manual_seed(0)
    ends = torch.randint(half, (count, 2), generator=generator)
    return torch.stack([ends[:, 0] + half, ends[:, 1]], 1)


def _looped(
    kind: NodeType, objective: str, device: str, n: int = 5, **options: Any
) -> Loop[EmbeddingTask]:
    settings = {"recipe": RECIPES[objective], "weights": torch.linspace(0.1, 1, 200), **options}
    return embedding.trainer(_edges(), NODES, n, kind, device=device, **settings)


def _task(kind: NodeType, objective: str, device: str, n: int = 5, **options: Any) -> EmbeddingTask:
    return _looped(kind, objective, device, n, **options).task


def _spread_out(task: EmbeddingTask, radius: float) -> EmbeddingTask:
    """Nodes within the radius; each of the second half less than 1 from one of the first."""
    generator = torch.Generator().manual_seed(1)
    h = torch.randn(task.h.shape, generator=generator).to(task.h.dtype)
    h *= radius * torch.rand(len(h), 1, generator=generator) / h.norm(dim=1, keepdim=True)
    first = h[: len(h) // 2]
    near = 0.3 * torch.randn(first.shape, generator=generator).to(h.dtype)
    h[len(h) // 2 :] = first + near * torch.exp(-first.norm(dim=1, keepdim=True))
    task.h.copy_(h)
    task.log_scale.copy_(0.3 * torch.randn(task.log_scale.shape, generator=generator) - 0.5)
    task.optimiser = task._optimiser()
    return task


def _in_float64(task: EmbeddingTask) -> EmbeddingTask:
    task.h, task.log_scale = task.h.double(), task.log_scale.double()
    task._grad = Gradient(torch.zeros_like(task.h), torch.zeros_like(task.log_scale))
    task.optimiser = task._optimiser()
    return task


def _first_block(task: EmbeddingTask) -> Any:
    size = task._in_block * task.groups * task.group
    order = torch.stack([torch.randperm(len(task._edges))[:size] for _ in range(task.copies)])
    return task._block(order.view(task.copies, task._in_block, task.groups, task.group), 1)


def _there(block: Any) -> Any:
    """The block as the kernels want it."""
    integers = {"edges": block.edges.int(), "negatives": block.negatives.int()}
    return type(block)(*(x.to(DEVICE) for x in block._replace(**integers)))


def _apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The length of the difference over the length."""
    expected = expected.double()
    if not expected.any():
        return float(found.double().norm())
    return float((found.double().cpu() - expected).norm() / expected.norm())


@pytest.mark.parametrize("radius", [2.0, 9.0])
@each_case
@each_recipe
def test_embedding_gradients_agree_with_the_formulas(
    objective: str, kind: NodeType, n: int, radius: float
) -> None:
    here, there = _task(kind, objective, "cpu", n), _task(kind, objective, DEVICE, n)
    _spread_out(there, radius)
    _in_float64(_spread_out(here, radius))
    block = _first_block(here)
    inputs = [(b.edges[0], b.negatives[0], b.noise[0], b.weight[0]) for b in (block, _there(block))]
    loss = torch.full_like(block.loss[0], torch.nan).to(DEVICE)
    expected = here._gradient(*inputs[0])
    there._gpu_gradient(*inputs[1], loss)
    slack = 3e-6 * (1 + math.exp(radius) / 10)
    assert _apart(loss, expected) < slack
    assert _apart(there._grad.centre, here._grad.centre) < slack
    assert _apart(there._grad.log_scale, here._grad.log_scale) < slack


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[2], KINDS[-1]], ids=str)
def test_centres_in_float64_serve_far_out(kind: NodeType) -> None:
    """Directions a millionth apart: float32 would be wrong by a tenth of a scale."""
    start = Layout(torch.zeros(NODES, 3, dtype=torch.float64), torch.ones(NODES, 1))
    here, there = (_task(kind, "softmax", d, 3, start=start) for d in ("cpu", DEVICE))
    _spread_out(there, 16.0)
    _in_float64(_spread_out(here, 16.0))
    block = _first_block(here)
    inputs = [(b.edges[0], b.negatives[0], b.noise[0], b.weight[0]) for b in (block, _there(block))]
    loss = torch.full_like(block.loss[0], torch.nan).to(DEVICE)
    assert _apart(there.h, here.h) == 0
    expected = here._gradient(*inputs[0])
    there._gpu_gradient(*inputs[1], loss)
    assert _apart(loss, expected) < 1e-4
    assert _apart(there._grad.centre, here._grad.centre) < 1e-3
    assert _apart(there._grad.log_scale, here._grad.log_scale) < 1e-3
    for task in (here, there):
        rates = torch.tensor(task.rates(1), device=task.device)
        task.optimiser.update(task.h, task.log_scale, task._grad, rates)
    assert there.h.dtype == torch.float64
    assert _apart(there.h, here.h) < 1e-4
    sources, noise = torch.tensor([3, 0, 39, 21, 3]), torch.randn(5, 6, 3)
    found = energies(there.h, there.log_scale, kind, sources.to(DEVICE), noise.to(DEVICE))
    wide = (there.h.cpu(), there.log_scale.cpu().double())
    assert _apart(found, energies(*wide, kind, sources, noise.double())) < 1e-4


@pytest.mark.parametrize("radius", [1e-3, 2.0, 9.0])
@each_case
@each_recipe
def test_embedding_updates_agree_with_the_formulas(
    objective: str, kind: NodeType, n: int, radius: float
) -> None:
    """Three steps with random gradients; some nodes have none, one sits at the origin."""
    here, there = _task(kind, objective, "cpu", n), _task(kind, objective, DEVICE, n)
    for task in (here, there):
        _spread_out(task, min(radius, 4.0) if objective == "hinge" else radius)
        task.h[0] = 0
    _in_float64(here)
    for step in range(1, 4):
        centre, log_scale = torch.randn(here.h.shape), torch.randn(here.log_scale.shape)
        centre[5:9] = log_scale[5:9] = 0
        if kind.point:
            log_scale.zero_()
        for task in (here, there):
            task._grad.centre.add_(centre.to(task.device))
            task._grad.log_scale.add_(log_scale.to(task.device))
            rates = torch.tensor(task.rates(step), device=task.device)
            task.optimiser.update(task.h, task.log_scale, task._grad, rates)
        assert _apart(there.h, here.h) < 1e-5
        assert _apart(there.log_scale, here.log_scale) < 1e-5
        assert not any(part.any() for part in there._grad)
    for name, state in here.optimiser.state.items():
        assert _apart(there.optimiser.state[name], state) < 1e-4


@each_kind
def test_embedding_updates_hold_the_radius(kind: NodeType) -> None:
    recipe = RECIPES["softmax"].but(radius=3.0)
    here, there = (_task(kind, "softmax", device, recipe=recipe) for device in ("cpu", DEVICE))
    for task in (here, there):
        _spread_out(task, 6.0)
        rates = torch.tensor(task.rates(1), device=task.device)
        task.optimiser.update(task.h, task.log_scale, task._grad, rates)
        assert abs(task.h.norm(dim=1).max().item() - 3) < 1e-5
    assert _apart(there.h, here.h) < 1e-5


@pytest.mark.parametrize("draws", [6, 50])
@each_case
def test_embedding_energies_agree_with_the_formulas(kind: NodeType, n: int, draws: int) -> None:
    there = _spread_out(_task(kind, "softmax", DEVICE, n), 6.0)
    sources, noise = torch.tensor([3, 0, 39, 21, 3]), torch.randn(5, draws, n)
    found = energies(there.h, there.log_scale, kind, sources.to(DEVICE), noise.to(DEVICE))
    wide = (there.h.cpu().double(), there.log_scale.cpu().double())
    assert _apart(found, energies(*wide, kind, sources, noise.double())) < 1e-4


@each_kind
@each_recipe
def test_embedding_steps_agree_with_the_cpu(objective: str, kind: NodeType) -> None:
    """The same batches and noise lead to the same place, copies included."""
    recipe = RECIPES[objective].but(burn_in=0)
    here, there = (
        _spread_out(_task(kind, objective, device, recipe=recipe, copies=2), 2.0)
        for device in ("cpu", DEVICE)
    )
    block = _first_block(here)
    blocks = {here: block, there: _there(block)}
    for task, batches in blocks.items():
        task._all_steps(batches)
    assert _apart(there.h, here.h) < 1e-3
    assert _apart(there.log_scale, here.log_scale) < 1e-3
    assert _apart(blocks[there].loss, block.loss) < 1e-3


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[2]], ids=["gaussian", "point"])
@each_recipe
def test_embedding_training_by_graph_learns_and_resumes(
    objective: str, kind: NodeType, tmp_path: Path
) -> None:
    # Sums on a GPU come in any order; large steps would make much of such differences.
    small = {"learning_rate": 0.01, "scale_learning_rate": 0.01, "eps": 0.1}
    recipe = RECIPES[objective].but(epochs=20, burn_in=2, **small)

    def looped(folder: Path) -> Loop[EmbeddingTask]:
        return _looped(kind, objective, DEVICE, recipe=recipe, copies=2, folder=folder)

    whole = looped(tmp_path / "whole")
    losses = [progress.numbers["loss"] for progress in whole.run()]
    assert max(losses[-1]) < min(losses[0])
    broken = looped(tmp_path / "broken")
    for _, _ in zip(range(10), broken.run(), strict=False):
        pass
    broken.save()
    resumed = looped(tmp_path / "broken")
    assert resumed.task.step == 10
    finish(resumed)
    assert _apart(resumed.task.h, whole.task.h.cpu()) < 0.02


@each_recipe
def test_few_edges_are_enough_on_a_gpu(objective: str) -> None:
    for count in (1, 3, 7, 21):
        settings = {"recipe": RECIPES[objective], "device": DEVICE}
        loop = embedding.trainer(_edges(count), NODES, 2, **settings)
        finish(loop)
        assert torch.isfinite(loop.task.h).all()


@each_recipe
def test_a_checkpoint_of_the_cpu_is_refused_on_a_gpu(objective: str, tmp_path: Path) -> None:
    """The random numbers of one are not those of the other."""
    finish(_looped(KINDS[0], objective, "cpu", folder=tmp_path))
    with pytest.raises(hw.errors.UserError):
        _looped(KINDS[0], objective, DEVICE, folder=tmp_path)


@each_kind
def test_embedding_evaluation_agrees_with_the_cpu(kind: NodeType) -> None:
    task = _spread_out(_task(kind, "softmax", DEVICE), 3.0)
    h, log_scale, edges = task.h, task.log_scale, _edges().unique(dim=0)
    there = finished(evaluate(h, log_scale, kind, edges, draws=400))
    here = finished(evaluate(h.cpu(), log_scale.cpu(), kind, edges, draws=400))
    error = 4 * (here.mean_average_precision_error + there.mean_average_precision_error)
    assert abs(here.mean_average_precision - there.mean_average_precision) <= error + 1e-4
    assert (
        abs(here.mean_rank - there.mean_rank)
        <= 4 * (here.mean_rank_error + there.mean_rank_error) + 1e-3
    )
    assert (here.sources, here.pairs) == (there.sources, there.pairs)


def test_far_out_on_a_gpu_there_is_no_nan() -> None:
    """Squares of what a node sees of another overflow float32 where they are 44 apart."""
    for kind in KINDS[:3]:
        loop = _looped(kind, "softmax", DEVICE, recipe=RECIPES["softmax"].but(initial_spread=9.0))
        finish(loop)
        assert torch.isfinite(loop.task.h).all()
        assert torch.isfinite(loop.task.log_scale).all()
