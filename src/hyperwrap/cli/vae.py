"""`hyperwrap vae`: a model of your own data, in a folder; it can be stopped and resumed.

The folder holds ``config.json`` (data, options, versions), ``metrics.jsonl`` (a line per report),
``checkpoint.safetensors`` (what ``--resume`` starts from), ``model.safetensors`` (`VAE.load`) and
``latents.csv`` (where each row of the data ended up).
"""

import csv
import hashlib
import inspect
import io
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from torch import Tensor

from hyperwrap import charts, tables
from hyperwrap.cli import show
from hyperwrap.cli.app import Device, Output, Resume, Seed, main, resumable, the_device
from hyperwrap.errors import UserError
from hyperwrap.runs import Run
from hyperwrap.threads import one_thread
from hyperwrap.training import Loop, seeded
from hyperwrap.vae import VAE, EuclideanLatent, HyperbolicLatent, Latent, dcgan, mlp
from hyperwrap.vae.latent import Coordinates, Covariance
from hyperwrap.vae.likelihoods import likelihood, suited
from hyperwrap.vae.train import Precision, Shuffled, Training, trainer

_Geometry = Literal["hyperbolic", "euclidean"]
_Network = Literal["mlp", "dcgan"]


def _option(help: str, **limits: Any) -> Any:
    return typer.Option(help=help, **limits)


@dataclass(frozen=True)
class Options:
    """What to train and how; types and texts are those of the command line."""

    dim: Annotated[int, _option("Dimension of the latent space.", min=1)] = 2
    geometry: Annotated[_Geometry, _option("Geometry of the latent space.")] = "hyperbolic"
    likelihood: Annotated[
        Literal["bernoulli", "gaussian", "poisson", "negative binomial"] | None,
        _option(
            "Likelihood of the data; by default bernoulli if all are in [0, 1], else gaussian."
        ),
    ] = None
    beta: Annotated[float, _option("Weight of the KL term.", min=0)] = 1.0
    warm_up: Annotated[int, _option("Steps over which beta rises from 0.", min=0)] = 0
    network: Annotated[_Network, _option("Kind of network; dcgan is for images.")] = "mlp"
    hidden: Annotated[
        list[int] | None,
        _option(
            "Width of a hidden layer of the mlp, by default 200; repeat for more layers.", min=1
        ),
    ] = None
    steps: Annotated[int, _option("Training steps.", min=1)] = 10_000
    batch: Annotated[int, _option("Rows per step.", min=1)] = 100
    learning_rate: Annotated[float, _option("Learning rate of Adam.", min=0)] = 1e-3
    num_samples: Annotated[int, _option("Latents drawn per row in each step.", min=1)] = 1
    covariance: Annotated[Covariance, _option("Covariance of each row's latent.")] = "diagonal"
    coordinates: Annotated[
        Coordinates | None,
        _option(
            "Coordinates of a hyperbolic latent that the decoder sees, by default hyperboloid."
        ),
    ] = None
    validation: Annotated[float, _option("Share of the rows to hold out.", min=0, max=0.9)] = 0.1
    precision: Annotated[
        Precision, _option("Precision of the networks; the geometry is always in float32.")
    ] = "float32"
    seed: Seed = 0

    def resolved(self, x: Tensor) -> "Options":
        """The options with everything left open decided by the data."""
        law = likelihood(self.likelihood or suited(x))
        law.require(x)
        if self.geometry == "euclidean" and self.coordinates:
            raise UserError("Expected --geometry hyperbolic with --coordinates; got euclidean.")
        if self.network == "dcgan" and self.hidden:
            raise UserError("Expected --network mlp with --hidden; got dcgan.")
        flat, dense = self.geometry == "euclidean", self.network == "mlp"
        return replace(
            self,
            likelihood=law.name,  # pyright: ignore[reportArgumentType]
            coordinates=None if flat else self.coordinates or "hyperboloid",
            hidden=(self.hidden or [200]) if dense else None,
        )

    def latent(self) -> Latent:
        if self.coordinates is None:
            return EuclideanLatent(self.dim, covariance=self.covariance)
        return HyperbolicLatent(self.dim, covariance=self.covariance, coordinates=self.coordinates)

    def model(self, event: tuple[int, ...]) -> VAE:
        """An untrained model for data of this shape, the same for the same seed."""
        assert self.likelihood is not None
        latent, hidden, law = self.latent(), self.hidden or [], likelihood(self.likelihood)
        with seeded(self.seed):
            if self.network == "dcgan":
                networks = dcgan(latent, event, likelihood=law, last_slope=0.2)
            else:
                encoder = mlp([event[0], *hidden, latent.encoder_outputs])
                outputs = law.outputs(event)[0]
                networks = encoder, mlp([latent.decoder_inputs, *reversed(hidden), outputs])
        return VAE(*networks, latent, law, self.beta)

    def training(self) -> Training:
        own = asdict(self)
        return Training(**{f.name: own[f.name] for f in fields(Training) if f.name in own})

    def held_out(self, rows: int) -> int:
        """How many of the rows to hold out; at least one is left to train on."""
        held = min(round(self.validation * rows), rows - 1)
        if self.network == "dcgan" and min(self.batch, rows - held) < 2:
            raise UserError(
                "Expected at least 2 images in a batch, as dcgan normalises over them; "
                f"got --batch {self.batch} and {rows - held} images to train on."
            )
        return held


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with a parameter for each field of `Options` in place of ``**options``."""
    own = inspect.signature(command).parameters.values()
    parameters = [p for p in own if p.kind is not inspect.Parameter.VAR_KEYWORD]
    for field in fields(Options):
        options = {"default": field.default, "annotation": field.type}
        parameters.append(inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, **options))
    command.__signature__ = inspect.Signature(parameters)  # pyright: ignore
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


# --- the command -------------------------------------------------------------------------------

_DATA = (
    "A table (.csv, .tsv), an array (.npy, .npz, .safetensors), a sparse matrix (.mtx, .npz) or an "
    "AnnData (.h5ad), one example per row."
)


@main.command()
@_with_options
def vae(
    context: typer.Context,
    data: Annotated[str, typer.Argument(metavar="DATA", help=_DATA)],
    output: Output = Path("runs/vae"),
    device: Device = None,
    resume: Resume = False,
    **options: Any,
) -> None:
    """Train a VAE on your own data; keep the model, its history and a latent for every row."""
    where, given = the_device(device), _read(data)
    chosen = Options(**options).resolved(given.x)
    x = _shaped(given.x, chosen)
    model, held = chosen.model(tuple(x.shape[1:])), chosen.held_out(len(x))
    digest = hashlib.sha256(x.contiguous().numpy().data).hexdigest()
    config = {"data": {"shape": list(x.shape), "sha256": digest}, "options": asdict(chosen)}
    about = {"source": data, "held_out": held, "device": where.type}
    run = Run(output, "hyperwrap vae", config, resume=resume, about=about)
    loop = _loop(model.to(where), x, held, chosen, run.folder)
    with resumable(context), _threads(model, chosen):
        show.follow(loop.run())
    loop.best.restore()
    show.line(_summary(loop, held))
    model.save(output / "model.safetensors")
    run.write("latents.csv", _csv(_latents(model, x), given.names))
    show.wrote(*sorted(output.glob("[!.]*")))


_PRODUCTS_FOR_A_SECOND_THREAD = 1e8  # of weights and numbers, in one step
_ROWS_AT_ONCE = 1_000


def _read(data: str) -> tables.Data:
    """A file, or a table that an installed package offers by name."""
    named = entry_points(group="hyperwrap.tables")
    if data in named.names and not Path(data).exists():
        with show.console.status(f"Reading {data}"):
            return tables.Data(named[data].load()())
    return tables.read(Path(data))


def _shaped(x: Tensor, options: Options) -> Tensor:
    """Rows of numbers for an MLP, images with channels for a DCGAN."""
    if options.network == "mlp":
        return x.flatten(1)
    if x.dim() not in (3, 4):
        raise UserError(
            "Expected images for --network dcgan, (rows, height, width) or (rows, channels, "
            f"height, width); got an array of shape {tuple(x.shape)}. Use --network mlp."
        )
    return x.unsqueeze(1) if x.dim() == 3 else x


def _loop(model: VAE, x: Tensor, held: int, options: Options, folder: Path) -> Loop:
    """A thousand reports and twenty looks at the validation data in all."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(options.seed))
    validation, rows = (x[part].to(model.beta.device) for part in order.tensor_split([held]))
    return trainer(
        model,
        Shuffled(rows, options.batch, options.seed),
        options.training(),
        folder,
        report_every=max(1, min(100, options.steps // 1000)),
        validation=validation if held else None,
        validate_every=max(1, options.steps // 20),
    )


def _threads(model: VAE, options: Options) -> AbstractContextManager[None]:
    parameters = sum(p.numel() for p in model.parameters())
    products = parameters * options.batch * options.num_samples
    small = options.network == "mlp" and products < _PRODUCTS_FOR_A_SECOND_THREAD
    return one_thread() if small else nullcontext()


def _summary(loop: Loop, held: int) -> str:
    if not held:
        return "Kept the last model; with --validation, the best is kept."
    score, step = loop.best.scores.item(), int(loop.best.steps)
    return f"Kept the best model, from step {step:,}: ELBO {score:.2f} on {held:,} held-out rows."


@torch.no_grad()
def _latents(model: VAE, x: Tensor) -> dict[str, list[float]]:
    """Columns: the radius, and coordinates."""
    latent, device = model.latent, model.beta.device
    z = torch.cat([model.embed(part.to(device)) for part in x.split(_ROWS_AT_ONCE)])
    origin = latent.centre(z.new_zeros(latent.encoder_outputs))
    columns = {"radius": latent.distance(z, origin).tolist()}
    kind, y = "z", z
    if isinstance(latent, HyperbolicLatent):
        kind, y = "poincare", charts.to_poincare(z, c=latent.c)
    return columns | {f"{kind}_{i}": each.tolist() for i, each in enumerate(y.unbind(-1), 1)}


def _csv(columns: dict[str, list[float]], names: list[str] | None) -> bytes:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["row", *columns])
    rows = names or range(len(columns["radius"]))
    for name, *numbers in zip(rows, *columns.values(), strict=True):
        table.writerow([name, *(f"{x:.9g}" for x in numbers)])
    return text.getvalue().encode()
