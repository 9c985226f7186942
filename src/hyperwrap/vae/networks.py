"""Networks for the models: MLPs, of one model or of many stacked, and DCGANs for images."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import cosh, prod, sqrt
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import conv2d, conv_transpose2d, pad

from hyperwrap.precision import at_least_float32, autocast_on, no_autocast, transformed
from hyperwrap.vae.latent import HyperbolicLatent, Latent

__all__ = ["Linear", "Network", "dcgan", "mlp", "rebuilt"]


class Network(nn.Sequential):
    """Layers made by a function of this module.

    Attributes:
        recipe: what `rebuilt` makes the same layers of; None if a part is not known here by name.
        event: the shape of a datum; dimensions before it are folded into one batch, as layers for
            images want it. None leaves that to the layers.
        folded: some of the layers, and a function of them and their input that does the same as
            they do one after the other, but faster on a GPU. None if there is no such function.
        exact: the layer from which on autocast is left for float32, if there is an `event`; None if
            it is not. Layers that are folded see to it themselves.
    """

    recipe: dict[str, Any] | None = None
    event: tuple[int, ...] | None = None
    folded: tuple[slice, Callable[..., Tensor]] | None = None
    exact: int | None = None

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.event is None:
            return super().forward(x)
        batch = x.shape[: max(x.dim() - len(self.event), 0)]
        if x.shape[len(batch) :] != self.event:
            wanted = ", ".join(["...", *map(str, self.event)])
            raise ValueError(f"Expected data of shape ({wanted}); got {tuple(x.shape)}.")
        y = x.reshape(prod(batch), *self.event)
        for step in self.steps(fold=x.is_cuda and not transformed(x, *self.parameters())):
            y = step(y)
        return y.unflatten(0, batch) if batch else y.squeeze(0)

    def steps(self, *, fold: bool) -> list[Callable[[Tensor], Tensor]]:
        """What the network does one after the other: the layers, those of `folded` in one."""
        steps: list[Callable[[Tensor], Tensor]] = list(self)
        if fold and self.folded is not None:
            where, together = self.folded
            steps[where] = [partial(together, *steps[where])]
        elif self.exact is not None:
            steps[self.exact :] = [partial(_in_float32, step) for step in steps[self.exact :]]
        return steps


def _in_float32(step: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """``step(x)``, in float32 if autocast is on."""
    if not autocast_on(x):
        return step(x)
    with no_autocast(x):
        return step(at_least_float32(x))


def rebuilt(recipe: Mapping[str, Any]) -> Network:
    """The network of a recipe, with weights of its own."""
    options = dict(recipe)
    return _MAKERS[options.pop("network")](**options)


# --- MLP ---------------------------------------------------------------------------------------


class Linear(nn.Module):
    """``x @ W + b``, for one model or a stack of them that share nothing but the call.

    With ``stack=(m,)`` the weights are ``(m, inputs, outputs)`` and act on ``(m, batch, inputs)``,
    or on ``(batch, inputs)`` seen by all. Several seeds then train in one program.
    """

    def __init__(self, inputs: int, outputs: int, *, stack: Sequence[int] = ()) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(*stack, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(*stack, outputs))
        lecun_normal(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        stacked = self.weight.dim() > 2
        bias = self.bias.unsqueeze(-2) if stacked else self.bias
        if stacked and x.dim() == self.weight.dim() == 3:
            return torch.baddbmm(bias, x, self.weight)
        y = x @ self.weight
        return y + bias.to(y.dtype)  # under autocast y is in half precision, and stays in it


def lecun_normal(weight: Tensor) -> None:
    """``N(0, 1/inputs)``."""
    nn.init.normal_(weight, std=1 / sqrt(weight.shape[-2]))


def glorot_uniform(weight: Tensor) -> None:
    """``U(−a, a)``, ``a = √(6/(inputs + outputs))``."""
    bound = sqrt(6 / (weight.shape[-2] + weight.shape[-1]))
    nn.init.uniform_(weight, -bound, bound)


_ACTIVATIONS = {each.__name__: each for each in (nn.Tanh, nn.ReLU, nn.ELU, nn.GELU, nn.SiLU)}


def mlp(
    sizes: Sequence[int],
    *,
    stack: Sequence[int] = (),
    activation: Callable[[], nn.Module] = nn.Tanh,
) -> Network:
    """Linear layers of these sizes with the activation between them.

    Hidden layers start LeCun normal, the last Glorot uniform, biases at 0, as in the paper's code.

    >>> mlp([784, 500, 4])(torch.zeros(10, 784)).shape
    torch.Size([10, 4])
    """
    if len(sizes) < 2:
        raise ValueError(f"Expected at least two `sizes`, of input and output; got {list(sizes)}.")
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [Linear(inputs, outputs, stack=stack), activation()]
    last = layers[-2]
    glorot_uniform(last.weight)  # pyright: ignore[reportArgumentType]
    network = Network(*layers[:-1])
    name = next((name for name, each in _ACTIVATIONS.items() if each is activation), None)
    if name is not None:
        options = {"sizes": list(sizes), "stack": list(stack), "activation": name}
        network.recipe = {"network": "mlp", **options}
    return network


def _mlp_of_names(*, activation: str, **options: Any) -> Network:
    return mlp(activation=_ACTIVATIONS[activation], **options)


# --- DCGAN -------------------------------------------------------------------------------------


def dcgan(
    latent: Latent,
    shape: Sequence[int] = (1, 80, 80),
    *,
    likelihood: Literal["bernoulli", "gaussian"] = "gaussian",
    last_slope: float = 0.0,
) -> tuple[Network, Network]:
    """Encoder and decoder of images ``(channels, height, width)``, those of §5.3 (Breakout).

    Three times the encoder halves height and width, and the decoder doubles them:

    - encoder: ``3×3 → 16``, ``4×4/2 → 32``, ``3×3 → 32``, ``4×4/2 → 64``, ``3×3 → 64``,
      ``4×4/2 → 64``, linear; leaky ReLU .2, batch normalisation with γ = .1 but after the first
    - decoder: linear to 64 channels, ``4×4·2 → 32``, ``3×3 → 32``, ``4×4·2 → 16``, ``3×3 → 16``,
      batch normalisation and ReLU each; ``4×4·2 → 2``, ReLU, ``3×3``

    Points of the hyperboloid go into the decoder as they are up to radius 10, the largest norm that
    the paper looks at, and those beyond as the point at 10 in the same direction (see `_Reach`;
    where the curvature is learned, 10 is as it begins).

    Weights start ``N(0, .02²)``. What the numbers of the decoder mean is up to the likelihood: for
    the Gaussian, means first and then scales (see `objective.gaussian`).

    Args:
        latent: the latent space, which says how many numbers go out and in.
        shape: of an image; height and width divisible by 8.
        likelihood: of the VAE.
        last_slope: below 0, of the ReLU before the last layer. The paper has 0; but all that the
            decoder says goes through its two channels, and at large learning rates both may die.

    >>> encoder, decoder = dcgan(hw.HyperbolicLatent(20))
    >>> vae = hw.VAE(encoder, decoder, hw.HyperbolicLatent(20), "gaussian")
    >>> vae.elbo(torch.zeros(3, 1, 80, 80)).elbo.shape
    torch.Size([3])
    """
    outputs = (2 if likelihood == "gaussian" else 1) * shape[0]
    encoder = _dcgan_encoder(latent.encoder_outputs, shape)
    reach = _reach(latent)
    return encoder, _dcgan_decoder(latent.decoder_inputs, outputs, shape, last_slope, reach)


def _reach(latent: Latent) -> float | None:
    """``z₀ = cosh(√c·r)/√c`` at radius ``r = 10``; None if the decoder is not given points."""
    if not isinstance(latent, HyperbolicLatent) or latent.coordinates != "hyperboloid":
        return None
    root = sqrt(torch.as_tensor(latent.c).item())
    return cosh(10 * root) / root


def _dcgan_encoder(outputs: int, shape: Sequence[int]) -> Network:
    channels, *small = _eighth(shape)
    layers: list[nn.Module] = [_same(channels, 16), nn.LeakyReLU(0.2)]
    for layer in (_halved(16, 32), _same(32, 32), _halved(32, 64), _same(64, 64), _halved(64, 64)):
        layers += [*_normalised(layer, gamma=0.1), nn.LeakyReLU(0.2, inplace=True)]
    network = Network(*layers, nn.Flatten(), nn.Linear(64 * prod(small), outputs))
    network.event = tuple(shape)
    network.recipe = {"network": "dcgan encoder", "outputs": outputs, "shape": list(shape)}
    return _in_squares(_started(network), slice(3), _halved_in_squares)


def _dcgan_decoder(
    inputs: int,
    outputs: int,
    shape: Sequence[int],
    last_slope: float,
    reach: float | None = None,
) -> Network:
    channels, *small = _eighth(shape)
    first = nn.Linear(inputs, 64 * prod(small), bias=False)
    layers: list[nn.Module] = [] if reach is None else [_Reach(reach)]
    layers += [first, nn.BatchNorm1d(first.out_features), nn.ReLU(), nn.Unflatten(1, (64, *small))]
    for layer in (_doubled(64, 32), _same(32, 32), _doubled(32, 16), _same(16, 16)):
        layers += [*_normalised(layer), nn.ReLU(inplace=True)]
    last = [_doubled(16, 2 * channels), nn.LeakyReLU(last_slope), _same(2 * channels, outputs)]
    network = Network(*layers, *last)
    network.event, network.exact = (inputs,), len(layers)
    options = {"outputs": outputs, "shape": list(shape), "last_slope": last_slope, "reach": reach}
    network.recipe = {"network": "dcgan decoder", "inputs": inputs, **options}
    return _in_squares(_started(network), slice(-3, None), _doubled_in_squares)


class _Reach(nn.Module):
    """Points of the hyperboloid, shortened where ``z₀`` is above a bound: ``z·b/max(z₀, b)``.

    Batch normalisation comes next. A few samples far out decide the variance of a batch, and all
    others then look alike to the decoder: at the beginning, when it cannot use them yet, a gain.
    Coordinates grow as ``e^r``, so nothing but the KL term ends that, and while β is small it does
    not before the variance overflows, at radius 44.
    """

    def __init__(self, bound: float) -> None:
        super().__init__()
        self.bound = bound

    def forward(self, z: Tensor) -> Tensor:
        # Not times bound/z₀: the derivative of that has 1/z₀², which underflows at radius 50.
        return z / (z[..., :1] / self.bound).clamp_min(1)

    def extra_repr(self) -> str:
        return f"{self.bound:g}"


def _eighth(shape: Sequence[int]) -> tuple[int, int, int]:
    """Channels, and height and width after three halvings."""
    channels, height, width = shape if len(shape) == 3 else (0, 0, 0)
    if min(channels, height, width) < 1 or height % 8 or width % 8:
        raise ValueError(
            "Expected images of shape (channels, height, width), height and width divisible by 8; "
            f"got {tuple(shape)}."
        )
    return channels, height // 8, width // 8


def _same(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1)


def _halved(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 4, stride=2, padding=1)


def _doubled(inputs: int, outputs: int) -> nn.ConvTranspose2d:
    return nn.ConvTranspose2d(inputs, outputs, 4, stride=2, padding=1)


def _normalised(layer: nn.Conv2d | nn.ConvTranspose2d, gamma: float = 1.0) -> list[nn.Module]:
    """The layer and batch normalisation, which takes away whatever bias the layer may have."""
    layer.register_parameter("bias", None)
    norm = nn.BatchNorm2d(layer.out_channels)
    nn.init.constant_(norm.weight, gamma)
    return [layer, norm]


def _started(network: Network) -> Network:
    """The network with weights ``N(0, .02²)`` and biases 0, laid out as GPUs like it best."""
    for layer in network:
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            nn.init.normal_(layer.weight, std=0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


# --- DCGAN in squares of pixels ------------------------------------------------------------------
#
# Tensor cores are made for many channels, and at full height and width a DCGAN has 1, 2 or 16.
# So on a GPU its layers there work on squares of 2×2 pixels, at half the height and width and with
# four times the channels. Pixel a ∈ {0, 1} of square r is pixel 2r + a, in height as in width, and
# a kernel of squares has three taps p: it sees the pixels a' of the squares r + p − 1. Of the
# fine kernel w that is the tap u, or 0 if there is none:
#
#     3×3, from squares to squares    Σ_u w[u]·x[2r + a + u − 1]    u = 2p + a' − a − 1
#     4×4/2, from squares to pixels   Σ_u w[u]·x[2r + u − 1]        u = 2p + a' − 1


def _halved_in_squares(
    same: nn.Conv2d, activation: nn.Module, halved: nn.Conv2d, x: Tensor
) -> Tensor:
    """``halved(activation(same(x)))``.

    A channel of ones carries the bias of the first, which so takes no pass over the result nor over
    its gradient; and of one channel it makes two, in squares the eight that tensor cores want.
    """
    x = _squares(pad(x, (0, 0, 0, 0, 0, 1), value=1.0))
    y = activation(conv2d(x, _kernel(same, same.bias), padding=1))
    return conv2d(y, _kernel(halved), padding=1)


def _doubled_in_squares(
    doubled: nn.ConvTranspose2d, activation: nn.Module, same: nn.Conv2d, x: Tensor
) -> Tensor:
    """``same(activation(doubled(x)))``; the first is the transpose of a layer 4×4/2."""
    with no_autocast(x):
        y = _Convolved.apply(x, _kernel(doubled), _four_times(doubled.bias), True, x.dtype)
        y = _Convolved.apply(activation(y), _kernel(same), _four_times(same.bias), False, x.dtype)
    return _pixels(y)


class _Convolved(torch.autograd.Function):
    """A convolution 3×3 that keeps the size, in the precision of the kernel.

    Means and scales of pixels want float32: in bfloat16 means come in steps of 1/256, in which a
    scale of .01 is lost, and a training goes up and down by thousands of nats. But if its input is
    in bfloat16 (``given``), gradients are: with those in float32 training was no better, and for so
    few channels a GPU takes much longer for them.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, kernel: Tensor, bias: Tensor, transposed: bool, given: torch.dtype
    ) -> Tensor:
        dtype = given if given == torch.bfloat16 else kernel.dtype
        ctx.save_for_backward(x.to(dtype), kernel.to(dtype))
        ctx.transposed = transposed
        convolve = conv_transpose2d if transposed else conv2d
        return convolve(x.to(kernel.dtype), kernel, bias, padding=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, kernel = ctx.saved_tensors
        slope, one, wanted = slopes[0].to(x.dtype), [1, 1], ctx.needs_input_grad[:3]
        form = ([slope.shape[1]], one, one, one, ctx.transposed, [0, 0], 1, wanted)
        return *torch.ops.aten.convolution_backward(slope, x, kernel, *form), None, None


def _in_squares(network: Network, where: slice, together: Callable[..., Tensor]) -> Network:
    """The network with these layers folded; each keeps its `_to_squares`, which is not saved."""
    for layer in list(network)[where]:
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            _, channels, size, _ = layer.weight.shape
            ones = together is _halved_in_squares and size == 3
            layer.register_buffer("to_squares", _to_squares(size, channels, ones), persistent=False)
    network.folded = where, together
    return network


def _to_squares(size: int, channels: int, ones: bool) -> Tensor:
    """Zeros and ones that make a kernel of squares, out of a row ``(u, v, i)`` of the fine one.

    With ``ones`` the row ends with a bias, and the kernel has one more channel in, of ones: the
    bias is its tap in the middle. Letters are those of above, ``c`` and ``d`` being ``a'``.
    """
    a, c = torch.arange(5 - size).view(-1, 1, 1, 1), torch.arange(2).view(-1, 1, 1)
    p, u = torch.arange(3).view(-1, 1), torch.arange(size)
    eye = torch.eye(channels + ones)
    tap = (2 * p + c - a - 1 == u).to(eye)
    whole = torch.einsum("acpu,bdqv,ij->uviabpqjcd", tap, tap, eye)
    rows = whole[:, :, :channels].flatten(0, 2)
    return (torch.cat([rows, whole[1, 1, channels:]]) if ones else rows).flatten(1)


def _kernel(layer: nn.Conv2d | nn.ConvTranspose2d, bias: Tensor | None = None) -> Tensor:
    """``(o, i, 3, 3) → (4o, 4i, 3, 3)`` or ``(o, i, 4, 4) → (o, 4i, 3, 3)``, channels last."""
    rows = layer.weight.permute(0, 2, 3, 1).flatten(1)
    rows = rows if bias is None else torch.cat([rows, bias.unsqueeze(1)], 1)
    with torch.autocast(rows.device.type, enabled=False):
        taps = rows @ layer.to_squares  # pyright: ignore[reportOperatorIssue]
    channels = layer.weight.shape[1] + (bias is not None)
    return taps.view(-1, 3, 3, 4 * channels).permute(0, 3, 1, 2)


def _four_times(bias: Tensor | None) -> Tensor | None:
    """For each pixel of a square."""
    return None if bias is None else bias.view(-1, 1).expand(-1, 4).flatten()


def _squares(x: Tensor) -> Tensor:
    """``(n, c, 2h, 2w) → (n, 4c, h, w)`` like `torch.pixel_unshuffle`, but channels last."""
    n, c, height, width = x.shape
    squares = x.reshape(n, c, height // 2, 2, width // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return squares.flatten(3).permute(0, 3, 1, 2)


def _pixels(x: Tensor) -> Tensor:
    """The inverse of `_squares`, channels first."""
    n, c, height, width = x.shape
    squares = x.permute(0, 2, 3, 1).unflatten(3, (c // 4, 2, 2))
    return squares.permute(0, 3, 1, 4, 2, 5).reshape(n, c // 4, 2 * height, 2 * width)


_MAKERS: dict[str, Callable[..., Network]] = {
    "mlp": _mlp_of_names,
    "dcgan encoder": _dcgan_encoder,
    "dcgan decoder": _dcgan_decoder,
}
