"""MLPs, one or many stacked; DCGANs for images; networks made again from their recipes."""

from functools import partial
from itertools import islice
from math import log, sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.backends import cudnn
from torch.testing import assert_close

import hyperwrap as hw
from hyperwrap.training import Loop
from hyperwrap.vae import Linear, mlp, model
from hyperwrap.vae.networks import Network, dcgan, rebuilt
from hyperwrap.vae.train import Shuffled, Training, trainer

SMALL = (1, 16, 8)


def image_vae(shape: tuple[int, ...] = SMALL, likelihood: Any = "gaussian") -> hw.VAE:
    latent = hw.HyperbolicLatent(2)
    networks = dcgan(latent, shape, likelihood=likelihood, last_slope=0.2)
    return hw.VAE(*networks, latent, likelihood)


def used(vae: hw.VAE) -> hw.VAE:
    """With running means of some data, in the mode for use."""
    vae.train()
    vae.elbo(torch.rand(20, *SMALL))
    return vae.eval()


# --- mlp ---------------------------------------------------------------------------------------


def test_layers_start_lecun_normal_and_the_last_glorot_uniform():
    net = mlp([400, 300, 200, 100])
    first, second, last = (layer for layer in net if isinstance(layer, Linear))
    for layer in (first, second):
        assert layer.weight.std().item() == pytest.approx(1 / sqrt(len(layer.weight)), rel=0.02)
        assert layer.weight.abs().max() > 3.5 / sqrt(len(layer.weight))
    bound = sqrt(6 / 300)
    assert 0.99 * bound < last.weight.abs().max() <= bound
    assert last.weight.std().item() == pytest.approx(bound / sqrt(3), rel=0.02)
    assert all((layer.bias == 0).all() for layer in (first, second, last))
    assert [type(layer) for layer in net] == [Linear, nn.Tanh, Linear, nn.Tanh, Linear]


def test_a_stack_starts_like_its_members_and_they_differ():
    net = mlp([300, 200, 100], stack=(4,))
    first, last = (layer for layer in net if isinstance(layer, Linear))
    assert first.weight.shape == (4, 300, 200)
    assert_close(first.weight.std((1, 2)), torch.full((4,), 1 / sqrt(300)), rtol=0.02, atol=0)
    assert last.weight.abs().max() <= sqrt(6 / 300)
    assert not torch.equal(first.weight[0], first.weight[1])


def test_the_activation_is_between_the_layers_only():
    assert [type(layer) for layer in mlp([2, 3, 4], activation=nn.ReLU)] == [
        Linear,
        nn.ReLU,
        Linear,
    ]
    assert [type(layer) for layer in mlp([2, 4])] == [Linear]


@pytest.mark.parametrize("shared", [False, True], ids=["own data", "shared data"])
def test_a_stacked_layer_is_its_linear_layers(shared: bool):
    stacked = Linear(4, 3, stack=(5,)).double()
    nn.init.normal_(stacked.bias)
    x = torch.randn(*(() if shared else (5,)), 7, 4, dtype=torch.float64)
    stacked(x).square().sum().backward()
    assert stacked.weight.grad is not None
    assert stacked.bias.grad is not None
    for i in range(5):
        single = nn.Linear(4, 3).double()
        single.load_state_dict({"weight": stacked.weight[i].T, "bias": stacked.bias[i].view(3)})
        output = single(x if shared else x[i])
        assert_close(stacked(x)[i], output)
        output.square().sum().backward()
        assert single.weight.grad is not None
        assert_close(stacked.weight.grad[i], single.weight.grad.T)
        assert_close(stacked.bias.grad[i].view(3), single.bias.grad)


# --- the DCGAN of the paper ----------------------------------------------------------------------


def kernels(network: Network) -> list[tuple[int, int, int]]:
    """Channels out, size and stride of every convolution."""
    layers = (m for m in network if isinstance(m, nn.Conv2d | nn.ConvTranspose2d))
    return [(m.out_channels, m.kernel_size[0], m.stride[0]) for m in layers]


def test_the_layers_are_those_of_breakout():
    encoder, decoder = dcgan(hw.HyperbolicLatent(20))
    assert kernels(encoder) == [
        (16, 3, 1),
        (32, 4, 2),
        (32, 3, 1),
        (64, 4, 2),
        (64, 3, 1),
        (64, 4, 2),
    ]
    assert kernels(decoder) == [
        (32, 4, 2),
        (32, 3, 1),
        (16, 4, 2),
        (16, 3, 1),
        (2, 4, 2),
        (2, 3, 1),
    ]
    (last,) = (m for m in encoder if isinstance(m, nn.Linear))
    (first,) = (m for m in decoder if isinstance(m, nn.Linear))
    assert (last.in_features, last.out_features) == (6400, 40)
    assert (first.in_features, first.out_features) == (21, 6400)
    slopes = [m.negative_slope for m in encoder if isinstance(m, nn.LeakyReLU)]
    assert slopes == [0.2] * 6
    assert sum(isinstance(m, nn.ReLU) for m in decoder) == 5
    assert [type(m) for m in encoder][:3] == [nn.Conv2d, nn.LeakyReLU, nn.Conv2d]
    assert [type(m) for m in decoder][-3:] == [nn.ConvTranspose2d, nn.LeakyReLU, nn.Conv2d]
    assert [m.negative_slope for m in decoder if isinstance(m, nn.LeakyReLU)] == [0.0]


def test_weights_start_as_in_the_code_of_the_paper():
    encoder, decoder = dcgan(hw.HyperbolicLatent(20))
    for network, gamma in ((encoder, 0.1), (decoder, 1.0)):
        norms = [m for m in network if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
        assert len(norms) == 5
        assert all((m.weight == gamma).all() and (m.bias == 0).all() for m in norms)
        for m in network:
            if isinstance(m, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
                if m.weight.numel() > 1000:
                    assert m.weight.std().item() == pytest.approx(0.02, rel=0.1)
                assert m.bias is None or (m.bias == 0).all()


def test_the_decoder_sees_no_further_than_radius_ten():
    _, decoder = dcgan(hw.HyperbolicLatent(3), SMALL)
    direction = torch.tensor([[2.0, -1.0, 2.0]]) / 3

    def at(radius: float) -> torch.Tensor:
        return hw.lorentz.exp0(radius * direction)

    near = torch.cat([at(0.0), at(1.0), at(9.99)])
    assert_close(decoder[0](near), near, rtol=0, atol=0)
    assert_close(decoder[0](at(60.0)), at(10.0))
    for c in (0.25, 4.0):
        wide = dcgan(hw.HyperbolicLatent(3, c=c, learn_c=c > 1), SMALL)[1]
        edge, beyond = (hw.lorentz.exp0(r * direction, c=c) for r in (10.0, 12.0))
        assert_close(wide[0](beyond), edge, rtol=2e-4, atol=0)
    for latent in (hw.EuclideanLatent(3), hw.HyperbolicLatent(3, coordinates="tangent")):
        assert isinstance(dcgan(latent, SMALL)[1][0], nn.Linear)


def test_samples_far_out_leave_the_decoder_finite():
    """Without a bound batch normalisation squares coordinates of ``e^80``."""
    _, decoder = dcgan(hw.HyperbolicLatent(3), SMALL)
    radii = torch.tensor([0.1, 1.0, 5.0, 9.0, 20.0, 50.0, 80.0, 88.0])
    v = torch.nn.functional.normalize(torch.randn(8, 3)) * radii.unsqueeze(1)
    v = v.requires_grad_()
    decoder(hw.lorentz.exp0(v)).square().sum().backward()
    slopes = [p.grad for p in (v, *decoder.parameters()) if p.grad is not None]
    assert len(slopes) > 10
    assert all(torch.isfinite(slope).all() for slope in slopes)
    assert all(torch.isfinite(b).all() for b in decoder.buffers())


def test_gradients_are_right_however_far_out():
    for radius in (5.0, 20.0, 48.0, 54.0, 80.0, 88.0):
        """Those of the direction; the radial one is 0 past the bound."""
        _, decoder = dcgan(hw.HyperbolicLatent(3), SMALL)
        pull, slopes = torch.tensor([0.3, -1.0, 0.7, 0.2]), []
        for dtype in (torch.float32, torch.float64):
            v = (radius * torch.tensor([2.0, -1.0, 2.0], dtype=dtype) / 3).requires_grad_()
            (decoder[0](hw.lorentz.exp0(v)) @ pull.to(dtype)).backward()
            slopes.append(v.grad)
        atol = 1e-4 * slopes[1].abs().max().item()
        assert_close(slopes[0].double(), slopes[1], rtol=1e-4, atol=atol)


# --- any images --------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
def test_images_of_any_size_that_eight_divides(likelihood: str):
    for shape in ((1, 80, 80), (3, 64, 48), (2, 8, 8)):
        vae, x = image_vae(shape, likelihood), torch.rand(3, *shape)
        assert vae.elbo(x, 2).elbo.shape == (3,)
        vae.eval()
        assert vae.embed(x).shape == (3, 3)
        assert vae.reconstruct(x).shape == x.shape
        assert vae.stack == ()


def test_other_images_are_answered_in_one_sentence():
    for shape in ((1, 28, 28), (1, 80, 84), (80, 80), (0, 8, 8), (1, 0, 8)):
        with pytest.raises(ValueError, match=r"^Expected images") as error:
            dcgan(hw.HyperbolicLatent(2), shape)
        assert str(error.value) == (
            "Expected images of shape (channels, height, width), height and width divisible by 8; "
            f"got {shape}."
        )


def test_data_of_another_shape_are_answered_in_one_sentence():
    vae = image_vae().eval()
    with pytest.raises(ValueError, match=r"^Expected data of shape \(\.\.\., 1, 16, 8\); got "):
        vae.embed(torch.zeros(3, 1, 8, 16))
    with pytest.raises(ValueError, match=r"got \(8,\)\.$"):
        vae.embed(torch.zeros(8))


def test_dimensions_before_an_image_are_a_batch():
    for batch in ((), (1,), (5,), (2, 3), (0,)):
        vae, x = used(image_vae()), torch.rand(*batch, *SMALL)
        with torch.no_grad():
            z = vae.embed(x)
            assert z.shape == (*batch, 3)
            assert vae.generate(z).shape == x.shape
            if z.numel():
                alone = torch.stack([vae.embed(image) for image in x.view(-1, *SMALL)])
                assert_close(z.view(-1, 3), alone)


def test_several_samples_are_decoded_like_one():
    for likelihood in ("bernoulli", "gaussian"):
        vae, x = used(image_vae(likelihood=likelihood)), torch.rand(4, *SMALL)
        torch.manual_seed(1)
        bound = vae.elbo(x, 3)
        torch.manual_seed(1)
        z, log_q, log_p = vae.latent.rsample(vae.encoder(x), (3,))
        output = torch.stack([vae.decoder(draw) for draw in z])
        expected = vae.likelihood.log_prob(output, x, 3) - (log_q - log_p)
        assert_close(bound.elbo, expected.mean(0), rtol=1e-4, atol=1e-3)


def test_many_samples_are_scored_in_chunks(monkeypatch: pytest.MonkeyPatch):
    vae, x = used(image_vae()), torch.rand(2, *SMALL)
    torch.manual_seed(1)
    with torch.no_grad():
        log_w = torch.cat([r - kl for r, kl in (vae._terms(x, s) for s in (3, 3, 1))])
    monkeypatch.setattr(model, "_MOST_ELEMENTS", x.numel() * 3)
    torch.manual_seed(1)
    score = vae.score(x, 7)
    assert_close(score.elbo, log_w.mean(0))
    assert_close(score.log_likelihood, torch.logsumexp(log_w, 0) - log(7))


# --- folded, as on a GPU -------------------------------------------------------------------------


def composed(steps: list[Any]) -> Any:
    """A function that does the steps one after the other."""

    def run(x: Tensor) -> Tensor:
        for step in steps:
            x = step(x)
        return x

    return run


def with_other_weights(network: Network, seed: int = 0) -> Network:
    """In float64, with weights and biases that leave no term small."""
    torch.manual_seed(seed)
    for parameter in network.double().parameters():
        nn.init.normal_(parameter)
    return network


@pytest.mark.parametrize("part", [0, 1], ids=["encoder", "decoder"])
@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
@pytest.mark.parametrize("shape", [(1, 16, 8), (2, 8, 24), (3, 8, 8)], ids=str)
def test_folded_layers_are_the_layers(shape: tuple[int, ...], likelihood: Any, part: int):
    pair = dcgan(hw.HyperbolicLatent(2), shape, likelihood=likelihood, last_slope=0.2)
    network = with_other_weights(pair[part])
    assert network.folded is not None
    layers = list(network)[network.folded[0]]
    (together,) = (step for step in network.steps(fold=True) if isinstance(step, partial))
    own = [p for layer in layers for p in layer.parameters()]
    height, width = (n // (1 if part == 0 else 2) for n in shape[1:])
    x = torch.randn(5, shape[0] if part == 0 else 16, height, width).double().requires_grad_()
    y, got = composed(layers)(x), together(x)
    assert_close(got, y)
    pull = torch.randn_like(y)
    expected = torch.autograd.grad(y, (x, *own), pull)
    assert len(own) == (3 if part == 0 else 4)
    assert_close(torch.autograd.grad(got, (x, *own), pull), expected)


def test_folded_networks_are_the_networks():
    for batch in (0, 3):
        networks = dcgan(hw.HyperbolicLatent(2), SMALL)
        encoder, decoder = (with_other_weights(network).eval() for network in networks)
        x = torch.rand(batch, *SMALL).double()
        assert_close(composed(encoder.steps(fold=True))(x), encoder(x))
        z = torch.randn(batch, 3).double()
        assert_close(composed(decoder.steps(fold=True))(z), decoder(z))
        assert len(encoder.steps(fold=True)) == len(encoder) - 2
        assert encoder.steps(fold=False) == list(encoder)


@pytest.mark.parametrize("fold", [False, True])
def test_means_and_scales_are_in_float32_also_where_others_are_not(fold: bool):
    _, decoder = dcgan(hw.HyperbolicLatent(2), SMALL, last_slope=0.2)
    *before, last = decoder.steps(fold=True)
    x = torch.randn(5, 16, *(n // 2 for n in SMALL[1:])).bfloat16().requires_grad_()
    steps = [last] if fold else decoder.steps(fold=False)[len(before) :]
    own = [p for layer in list(decoder)[-3:] for p in layer.parameters()]
    with torch.autocast("cpu", torch.bfloat16):
        z = torch.randn(5, 3)
        assert composed(before)(z).dtype == torch.bfloat16
        y = composed(steps)(x)
    expected = composed(list(decoder)[-3:])(x.float())
    assert_close(y, expected)
    pull = torch.randn_like(y)
    slopes = (torch.autograd.grad(each, (x, *own), pull) for each in (y, expected))
    for got, true in zip(*slopes, strict=True):
        assert (got - true).float().norm() < 0.02 * true.float().norm()


@pytest.mark.parametrize("frozen", ["input", "weights"])
def test_folded_layers_whose_input_or_weights_have_no_gradient(frozen: str):
    _, decoder = dcgan(hw.HyperbolicLatent(2), SMALL, last_slope=0.2)
    *_, last = decoder.steps(fold=True)
    x = torch.randn(5, 16, *(n // 2 for n in SMALL[1:]), requires_grad=frozen == "weights")
    decoder.requires_grad_(frozen == "input")
    wanted: Any = x if frozen == "weights" else decoder[-1].weight
    y, expected = last(x), composed(list(decoder)[-3:])(x)
    pull = torch.randn_like(y)
    assert_close(torch.autograd.grad(y, wanted, pull), torch.autograd.grad(expected, wanted, pull))


def test_a_decoder_in_bfloat16_and_one_without_memory():
    _, decoder = dcgan(hw.HyperbolicLatent(2), SMALL)
    assert decoder.to("meta")(torch.zeros(5, 3, device="meta")).shape == (5, 2, *SMALL[1:])
    _, decoder = dcgan(hw.HyperbolicLatent(2), SMALL)
    assert decoder.bfloat16()(torch.zeros(5, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.gpu
def test_a_decoder_can_be_mapped_on_a_gpu():
    decoder = dcgan(hw.HyperbolicLatent(2), SMALL)[1].eval().cuda()
    z = torch.randn(3, 5, 3).cuda()
    # torch cannot map batch normalisation by cuDNN (2.11: "NYI: querying is_contiguous").
    with cudnn.flags(enabled=False):
        assert_close(torch.func.vmap(decoder)(z), decoder(z))


def test_folding_is_not_saved():
    for network in dcgan(hw.HyperbolicLatent(2), SMALL):
        assert not any("squares" in name for name in network.state_dict())
        assert sum("squares" in name for name, _ in network.named_buffers()) == 2


def test_an_mlp_is_not_folded():
    network = mlp([4, 3])
    assert network.steps(fold=True) == list(network)


# --- training ----------------------------------------------------------------------------------


def stripes(rows: int) -> Tensor:
    """Images of a bar whose height and brightness vary."""
    top, light = torch.randint(0, 12, (rows,)), torch.rand(rows)
    height = torch.arange(16)
    inside = (height >= top[:, None]) & (height < top[:, None] + 4)
    return (inside * light[:, None]).view(rows, 1, 16, 1).expand(rows, *SMALL).contiguous()


def loop_of(folder: Path | None, steps: int = 40, seed: int = 0, **options: Any) -> Loop:
    torch.manual_seed(7)
    x = stripes(64)
    torch.manual_seed(seed)
    batches, training = Shuffled(x, 16, 0), Training(steps, 3e-3)
    return trainer(image_vae(), batches, training, folder, validation=x[:16], **options)


@pytest.mark.slow
def test_a_dcgan_learns():
    first, *_, last = loop_of(None, steps=60, report_every=10).run()
    assert last.numbers["elbo"] > first.numbers["elbo"] + 30


@pytest.mark.slow
def test_a_dcgan_resumes_with_the_same_bits(tmp_path: Path):
    whole, killed = loop_of(None, report_every=5), loop_of(tmp_path, report_every=5)
    list(whole.run())
    for _ in islice(killed.run(), 4):
        killed.save()
    resumed = loop_of(tmp_path, seed=1)
    assert resumed.task.step == 20
    list(resumed.run())
    for name, t in whole.task.state().items():
        assert torch.equal(t, resumed.task.state()[name]), name


# --- recipes -----------------------------------------------------------------------------------

NETWORKS = {
    "mlp": lambda: mlp([4, 6, 5, 3], activation=nn.ELU),
    "stack": lambda: mlp([4, 6, 3], stack=(2,)),
    "dcgan encoder": lambda: dcgan(hw.HyperbolicLatent(2), (3, 8, 16))[0],
    "dcgan decoder": lambda: dcgan(hw.HyperbolicLatent(2), (3, 8, 16))[1],
    "vanilla dcgan decoder": lambda: dcgan(
        hw.EuclideanLatent(2), (3, 8, 16), likelihood="bernoulli", last_slope=0.1
    )[1],
}


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS.keys())
def test_a_recipe_makes_the_same_network(make: Any):
    network = make()
    again = rebuilt(network.recipe)
    assert repr(again) == repr(network)
    assert again.recipe == network.recipe
    assert again.event == network.event
    again.load_state_dict(network.state_dict())


def test_an_activation_of_ones_own_has_no_recipe():
    assert mlp([4, 3], activation=lambda: nn.Tanh()).recipe is None


# --- on a GPU ------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1, 80, 80), (3, 16, 8)], ids=str)
def test_a_dcgan_is_the_same_on_a_gpu(shape: tuple[int, ...]):
    encoder, decoder = (with_other_weights(n).eval() for n in dcgan(hw.HyperbolicLatent(2), shape))
    for network, x in ((encoder, torch.rand(5, *shape)), (decoder, torch.randn(5, 3))):
        y = network(x.double())
        y.sum().backward()
        slopes = [p.grad for p in network.parameters()]
        network.zero_grad()
        y_cuda = network.cuda()(x.double().cuda())
        y_cuda.sum().backward()
        assert_close(y_cuda.cpu(), y)
        assert_close([p.grad.cpu() for p in network.parameters() if p.grad is not None], slopes)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_dcgan_trains_as_a_graph(precision: Any, tmp_path: Path):
    def on_gpu(folder: Path) -> Loop:
        torch.manual_seed(0)
        x, training = stripes(64).cuda(), Training(60, 3e-3, precision=precision)
        vae, batches = image_vae().cuda(), Shuffled(x, 16, 0)
        return trainer(vae, batches, training, folder, report_every=10, validation=x[:16])

    whole, killed = on_gpu(tmp_path / "whole"), on_gpu(tmp_path / "killed")
    first, *_, last = whole.run()
    assert last.numbers["elbo"] > first.numbers["elbo"] + 30
    for _ in islice(killed.run(), 2):
        killed.save()
    assert killed.task.state()["model.encoder.3.num_batches_tracked"] == 20
    resumed = on_gpu(tmp_path / "killed")
    assert resumed.task.step == 20
    *_, again = resumed.run()
    assert again.numbers["elbo"] == pytest.approx(last.numbers["elbo"], rel=0.05)
