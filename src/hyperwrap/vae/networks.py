"""Networks for the models: MLPs, for one model or many stacked, and DCGANs for images."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import cosh, prod, sqrt
from typing import Any

import torch
from torch import Tensor, nn

from hyperwrap.errors import UserError
from hyperwrap.kernels import squares
from hyperwrap.precision import at_least_float32, autocast_on, no_autocast, transformed
from hyperwrap.vae.latent import HyperbolicLatent, Latent
from hyperwrap.vae.likelihoods import Likelihood
from hyperwrap.vae.likelihoods import likelihood as the_likelihood

__all__ = ["Beside", "Linear", "Network", "dcgan", "mlp", "rebuilt"]


class Network(nn.Sequential):
    """Layers made by a function of this module.

    Attributes:
        recipe: what `rebuilt` makes the same layers from; None if a part has no name here.
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
        """What the network does in order: the layers, those of `folded` in one."""
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
    """The network of a recipe, with its own weights."""
    options = dict(recipe)
    return _MAKERS[options.pop("network")](**options)


# --- MLP ---------------------------------------------------------------------------------------


class Linear(nn.Module):
    """``x @ W + b``, for one model or a stack that shares nothing but the call.

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


class Beside(nn.Module):
    """The sum of a linear map and another network of the same input."""

    def __init__(self, linear: Linear, network: nn.Module) -> None:
        super().__init__()
        self.linear, self.network = linear, network

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.network(x)


_ACTIVATIONS = {each.__name__: each for each in (nn.Tanh, nn.ReLU, nn.ELU, nn.GELU, nn.SiLU)}


def mlp(
    sizes: Sequence[int],
    *,
    stack: Sequence[int] = (),
    activation: Callable[[], nn.Module] = nn.Tanh,
    dropout: float = 0.0,
    beside_linear: bool = False,
) -> Network:
    """Linear layers of these sizes with the activation between them.

    Hidden layers start LeCun normal, the last Glorot uniform, biases at 0, as in the paper's code.

    Args:
        sizes: of the input, the hidden layers and the output.
        stack: the shape of a stack of networks; see `Linear`.
        activation: a class of layers.
        dropout: the share of the hidden units that are left out in each step of training.
        beside_linear: whether a linear map of the input is added to the output. The last of the
            other layers then starts at 0, so that the network starts linear.

    >>> mlp([784, 500, 4])(torch.zeros(10, 784)).shape
    torch.Size([10, 4])
    """
    if len(sizes) < 2:
        raise ValueError(f"Expected at least two `sizes`, of input and output; got {list(sizes)}.")
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [Linear(inputs, outputs, stack=stack), activation()]
        layers += [nn.Dropout(dropout)] if dropout else []
    layers = layers[: -2 if dropout else -1]
    glorot_uniform(layers[-1].weight)  # pyright: ignore[reportArgumentType]
    network = Network(*layers)
    if beside_linear:
        nn.init.zeros_(layers[-1].weight)  # pyright: ignore[reportArgumentType]
        network = Network(Beside(Linear(sizes[0], sizes[-1], stack=stack), network))
    name = next((name for name, each in _ACTIVATIONS.items() if each is activation), None)
    if name is not None:
        options = {"sizes": list(sizes), "stack": list(stack), "activation": name}
        options |= {"dropout": dropout, "beside_linear": beside_linear}
        network.recipe = {"network": "mlp", **options}
    return network


def _mlp_of_names(*, activation: str, **options: Any) -> Network:
    return mlp(activation=_ACTIVATIONS[activation], **options)


# --- DCGAN -------------------------------------------------------------------------------------


def dcgan(
    latent: Latent,
    shape: Sequence[int] = (1, 80, 80),
    *,
    likelihood: str | Likelihood = "gaussian",
    last_slope: float = 0.0,
) -> tuple[Network, Network]:
    """Encoder and decoder of images ``(channels, height, width)``, those of §5.3 (Breakout).

    The encoder halves height and width three times, and the decoder doubles them:

    - encoder: ``3×3 → 16``, ``4×4/2 → 32``, ``3×3 → 32``, ``4×4/2 → 64``, ``3×3 → 64``,
      ``4×4/2 → 64``, linear; leaky ReLU .2, batch normalisation with γ = .1 but after the first
    - decoder: linear to 64 channels, ``4×4·2 → 32``, ``3×3 → 32``, ``4×4·2 → 16``, ``3×3 → 16``,
      batch normalisation and ReLU each; ``4×4·2 → 2``, ReLU, ``3×3``

    Points of the hyperboloid go into the decoder as they are up to radius 10, the largest norm that
    the paper looks at, and those beyond as the point at 10 in the same direction (see `_Reach`;
    where the curvature is learned, 10 is at its initial value).

    Weights start ``N(0, .02²)``, drawn with torch's generator.

    Args:
        latent: the latent space, which says how many numbers go out and in.
        shape: the shape of an image; height and width divisible by 8.
        likelihood: that of the VAE; it says how many channels the decoder returns.
        last_slope: the slope below 0 of the ReLU before the last layer. The paper has 0; but all
            that the decoder says goes through its two channels, and at large learning rates both
            may die.

    >>> encoder, decoder = dcgan(hw.HyperbolicLatent(20))
    >>> vae = hw.VAE(encoder, decoder, hw.HyperbolicLatent(20), "gaussian")
    >>> vae.elbo(torch.zeros(3, 1, 80, 80)).elbo.shape
    torch.Size([3])
    """
    encoder, reach = _dcgan_encoder(latent.encoder_outputs, shape), _reach(latent)
    outputs = the_likelihood(likelihood).outputs(tuple(shape))[0]
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
    return _folded(_started(network), slice(3), squares.halved)


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
    return _folded(_started(network), slice(-3, None), squares.doubled)


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
        raise UserError(
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
    """The layer and batch normalisation, which removes any bias the layer may have."""
    layer.register_parameter("bias", None)
    norm = nn.BatchNorm2d(layer.out_channels)
    nn.init.constant_(norm.weight, gamma)
    return [layer, norm]


def _started(network: Network) -> Network:
    """The network with weights ``N(0, .02²)`` and biases 0, in the memory layout GPUs prefer."""
    for layer in network:
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            nn.init.normal_(layer.weight, std=0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


def _folded(network: Network, where: slice, together: Callable[..., Tensor]) -> Network:
    """The network with these layers done in one, on squares of pixels."""
    squares.prepare(list(network)[where], ones=together is squares.halved)
    network.folded = where, together
    return network


_MAKERS: dict[str, Callable[..., Network]] = {
    "mlp": _mlp_of_names,
    "dcgan encoder": _dcgan_encoder,
    "dcgan decoder": _dcgan_decoder,
}
