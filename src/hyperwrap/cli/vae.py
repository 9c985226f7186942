"""`hyperwrap vae`: a model of anybody's data, in a folder that can be stopped and gone on with.

The folder holds ``config.json`` (data, options, versions), ``metrics.jsonl`` (a line a report),
``checkpoint.safetensors`` (what ``--resume`` goes on from), ``model.safetensors`` (`VAE.load`) and
``latents.csv`` (where each row of the data came to lie).
"""

import csv
import hashlib
import inspect
import io
import json
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from torch import Tensor

from hyperwrap import charts
from hyperwrap.cli import show
from hyperwrap.cli.app import Device, Output, Seed, main, the_device
from hyperwrap.errors import UserError
from hyperwrap.files import as_json, write_whole
from hyperwrap.runs import commit, versions
from hyperwrap.threads import one_thread
from hyperwrap.vae import VAE, EuclideanLatent, HyperbolicLatent, Latent, mlp, tables
from hyperwrap.vae.networks import dcgan
from hyperwrap.vae.train import Progress, Shuffled, Trainer, Training


def _option(help: str, **limits: Any) -> Any:
    return typer.Option(help=help, show_default=True, **limits)


@dataclass(frozen=True)
class Options:
    """What to train and how; the types and texts are those of the command line."""

    dim: Annotated[int, _option("Dimension of the latent space.", min=1)] = 2
    geometry: Annotated[Literal["hyperbolic", "euclidean"], _option("Where the latents are.")] = (
        "hyperbolic"
    )
    likelihood: Annotated[
        Literal["bernoulli", "gaussian"] | None,
        _option("Of the data; bernoulli if all of them are in [0, 1], else gaussian."),
    ] = None
    beta: Annotated[float, _option("Weight of the KL term.", min=0)] = 1.0
    warm_up: Annotated[int, _option("Steps over which beta rises from 0.", min=0)] = 0
    network: Annotated[
        Literal["mlp", "dcgan"], _option("Of encoder and decoder; dcgan is for images.")
    ] = "mlp"
    hidden: Annotated[
        list[int] | None,
        _option("Width of the mlp's hidden layer, 200 if not given; repeat for more.", min=1),
    ] = None
    steps: Annotated[int, _option("Steps to train.", min=1)] = 10_000
    batch: Annotated[int, _option("Rows in a step.", min=1)] = 100
    learning_rate: Annotated[float, _option("Of Adam.", min=0)] = 1e-3
    num_samples: Annotated[int, _option("Latents a row; more tighten the bound.", min=1)] = 1
    covariance: Annotated[Literal["diagonal", "scalar", "full"], _option("Of a row's latent.")] = (
        "diagonal"
    )
    coordinates: Annotated[
        Literal["hyperboloid", "tangent", "poincare"] | None,
        _option("In which the decoder sees a hyperbolic latent; hyperboloid."),
    ] = None
    validation: Annotated[float, _option("Share of rows held out.", min=0, max=0.9)] = 0.1
    precision: Annotated[
        Literal["float32", "bfloat16"], _option("Of the networks; the geometry has float32.")
    ] = "float32"
    seed: Seed = 0

    def resolved(self, x: Tensor) -> "Options":
        """With all that is left open decided, after a look at the data."""
        inside = bool(x.min() >= 0 and x.max() <= 1)
        likelihood = self.likelihood or ("bernoulli" if inside else "gaussian")
        if likelihood == "bernoulli" and not inside:
            raise UserError(
                f"Expected values in [0, 1], as the likelihood is bernoulli; got {x.min():.4g} to "
                f"{x.max():.4g}. Take --likelihood gaussian, or scale them."
            )
        if self.geometry == "euclidean" and self.coordinates:
            raise UserError("Expected --coordinates with --geometry hyperbolic; got euclidean.")
        if self.network == "dcgan" and self.hidden:
            raise UserError("Expected --hidden with --network mlp; got dcgan.")
        flat, dense = self.geometry == "euclidean", self.network == "mlp"
        return replace(
            self,
            likelihood=likelihood,
            coordinates=None if flat else self.coordinates or "hyperboloid",
            hidden=(self.hidden or [200]) if dense else None,
        )

    def latent(self) -> Latent:
        if self.geometry == "euclidean":
            return EuclideanLatent(self.dim, covariance=self.covariance)
        assert self.coordinates is not None
        return HyperbolicLatent(self.dim, covariance=self.covariance, coordinates=self.coordinates)

    def model(self, event: tuple[int, ...]) -> VAE:
        """An untrained one for data of this shape, the same for the same seed."""
        torch.manual_seed(self.seed)
        latent, hidden = self.latent(), self.hidden or []
        likelihood: Any = self.likelihood
        if self.network == "dcgan":
            networks = dcgan(latent, event, likelihood=likelihood, last_slope=0.2)
        else:
            outputs = event[0] * (2 if likelihood == "gaussian" else 1)
            encoder = mlp([event[0], *hidden, latent.encoder_outputs])
            networks = encoder, mlp([latent.decoder_inputs, *reversed(hidden), outputs])
        return VAE(*networks, latent, likelihood, self.beta)

    def training(self) -> Training:
        return Training(
            steps=self.steps,
            learning_rate=self.learning_rate,
            num_samples=self.num_samples,
            warm_up=self.warm_up,
            seed=self.seed,
            precision=self.precision,
        )


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

_DATA = "A table (.csv, .tsv) or an array (.npy, .npz, .safetensors), one datum per row."


@main.command()
@_with_options
def vae(
    data: Annotated[str, typer.Argument(metavar="DATA", help=_DATA)],
    output: Output = Path("runs/vae"),
    device: Device = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in DIR, if there is one.")
    ] = False,
    **options: Any,
) -> None:
    """Train a VAE on your own data: the model, its history, and a latent for every row."""
    where, given = the_device(device), _read(data)
    asked = Options(**options)
    chosen = asked.resolved(given.x)
    x = _shaped(given.x, chosen)
    run = _Run(output, chosen, x, _model(chosen, x), where)
    run.claim(data, resume)
    try:
        run.train()
    except KeyboardInterrupt:
        show.line(f"Stopped. To go on: {_command(data, output, device, asked)}", show.errors)
        raise typer.Exit(130) from None
    run.finish(given.names)


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
            f"height, width); got an array of shape {tuple(x.shape)}. Take --network mlp."
        )
    return x.unsqueeze(1) if x.dim() == 3 else x


def _model(options: Options, x: Tensor) -> VAE:
    try:
        return options.model(tuple(x.shape[1:]))
    except ValueError as error:
        raise UserError(str(error)) from None


def _command(data: str, output: Path, device: str | None, asked: Options) -> str:
    """What to type to go on."""
    words = ["hyperwrap", "vae", data, "-o", str(output), "--resume"]
    words += ["--device", str(device)] if device else []
    for field in fields(Options):
        value, name = getattr(asked, field.name), field.name.replace("_", "-")
        for each in (value if isinstance(value, list) else [value]) * (value != field.default):
            words += [f"--{name}", str(each)]
    return shlex.join(words)


# --- one run -----------------------------------------------------------------------------------

_COMMAND = "hyperwrap vae"
_SECONDS_BETWEEN_CHECKPOINTS = 20.0
_PRODUCTS_FOR_A_SECOND_THREAD = 1e8  # of weights and numbers, in one step
_ROWS_AT_ONCE = 1_000


@dataclass
class _Run:
    """A folder and the training that fills it."""

    folder: Path
    options: Options
    x: Tensor
    model: VAE
    device: torch.device

    @property
    def held_out(self) -> int:
        return min(round(self.options.validation * len(self.x)), len(self.x) - 1)

    def claim(self, data: str, resume: bool) -> None:
        """Makes the folder one of this run; somebody else's stays as it is."""
        self._require_batch()
        config = self._config(data)
        if resume and (self.folder / "config.json").exists():
            _require_same(config, self.folder / "config.json")
            return
        for name in _FILES:
            if (self.folder / name).exists():
                again = "Go on with that run with --resume, or choose"
                raise UserError(
                    f"Expected a new folder; {self.folder} holds {name}. "
                    f"{again if self._is_run() else 'Choose'} another folder with -o."
                )
        write_whole(self.folder / "config.json", as_json(config))

    def _is_run(self) -> bool:
        """Whether the folder is one of this command."""
        try:
            config = json.loads((self.folder / "config.json").read_bytes())
        except (OSError, ValueError):
            return False
        return isinstance(config, dict) and config.get("command") == _COMMAND

    def _config(self, data: str) -> dict[str, Any]:
        digest = hashlib.sha256(self.x.contiguous().numpy().data).hexdigest()
        return {
            "command": _COMMAND,
            "data": {"name": data, "shape": list(self.x.shape), "sha256": digest},
            "options": asdict(self.options),
            "held_out": self.held_out,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "device": self.device.type,
            "commit": commit(),
            "versions": versions(),
        }

    def train(self) -> None:
        trainer, last = self._trainer(), None
        with self._threads(), show.bars({self.options.geometry: self.options.steps}) as watch:
            for last in self._steps(trainer):
                watch(self.options.geometry, last)
        show.line("Nothing was left to train." if last is None else self._summary(last))

    def _steps(self, trainer: Trainer) -> Iterator[Progress]:
        """A thousand reports and twenty validations in all; checkpoints by the clock."""
        steps, saved = self.options.steps, time.monotonic()
        report, validate = max(1, min(100, steps // 1000)), max(1, steps // 20)
        for progress in trainer.run(report, save_every=steps, validate_every=validate):
            yield progress
            if time.monotonic() - saved > _SECONDS_BETWEEN_CHECKPOINTS:
                trainer.save()
                saved = time.monotonic()

    def _threads(self) -> AbstractContextManager[None]:
        parameters = sum(p.numel() for p in self.model.parameters())
        products = parameters * self.options.batch * self.options.num_samples
        small = self.options.network == "mlp" and products < _PRODUCTS_FOR_A_SECOND_THREAD
        return one_thread() if small else nullcontext()

    def _trainer(self) -> Trainer:
        held = self.held_out
        order = torch.randperm(
            len(self.x), generator=torch.Generator().manual_seed(self.options.seed)
        )
        rows, validation = self.x[order[held:]], self.x[order[:held]]
        batches = Shuffled(rows.to(self.device), self.options.batch, self.options.seed)
        model = self.model.to(self.device)
        return Trainer(
            model,
            batches,
            self.options.training(),
            self.folder,
            validation.to(self.device) if held else None,
        )

    def _require_batch(self) -> None:
        rows = len(self.x) - self.held_out
        if self.options.network == "dcgan" and min(self.options.batch, rows) < 2:
            raise UserError(
                "Expected at least 2 images in a batch, as dcgan normalises over them; "
                f"got --batch {self.options.batch} and {rows} images to train on."
            )

    def _summary(self, last: Progress) -> str:
        if last.validation is None:
            return f"ELBO {last.elbo[0]:.2f}, in the last steps of training."
        return f"ELBO {last.validation[0]:.2f}, of {self.held_out:,} rows that were held out."

    def finish(self, names: list[str] | None) -> None:
        """Writes the model and a latent for every row."""
        self.model.save(self.folder / "model.safetensors")
        write_whole(self.folder / "latents.csv", _csv(self._latents(), names))
        show.wrote(*(self.folder / name for name in _FILES))

    @torch.no_grad()
    def _latents(self) -> dict[str, list[float]]:
        """Columns: the distance from the origin, and coordinates."""
        latent = self.model.latent
        parts = (part.to(self.device) for part in self.x.split(_ROWS_AT_ONCE))
        z = torch.cat([self.model.embed(part) for part in parts])
        origin = latent.centre(z.new_zeros(latent.encoder_outputs))
        columns = {"radius": latent.distance(z, origin).tolist()}
        kind, y = "z", z
        if isinstance(latent, HyperbolicLatent):
            kind, y = "poincare", charts.to_poincare(z, c=latent.c)
        return columns | {f"{kind}_{i}": each.tolist() for i, each in enumerate(y.unbind(-1), 1)}


_FILES = (
    "config.json",
    "metrics.jsonl",
    "checkpoint.safetensors",
    "model.safetensors",
    "latents.csv",
)


def _require_same(config: dict[str, Any], path: Path) -> None:
    """Raises a `UserError` if the run of ``config.json`` is of other data or options."""
    try:
        found = json.loads(path.read_bytes())
        there, here = dict(found["options"]), _through_json(config["options"])
        data = {key: found["data"][key] for key in ("shape", "sha256")}
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"Expected the config.json of a run in {path}; it is something else. "
            "Choose another folder with -o."
        ) from None
    for name, value in here.items():
        if there.get(name) != value:
            raise UserError(
                f"Expected the options of the run in {path.parent}; --{name.replace('_', '-')} is "
                f"{there.get(name)} there and {value} here. Take the same, or another folder."
            )
    if data != {key: config["data"][key] for key in data}:
        raise UserError(
            f"Expected the data of the run in {path.parent}, {found['data']['name']}; these are "
            "others. Take the same, or another folder."
        )


def _through_json(config: Any) -> Any:
    return json.loads(json.dumps(config))


def _csv(columns: dict[str, list[float]], names: list[str] | None) -> bytes:
    rows = len(columns["radius"])
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["row", *columns])
    for name, *numbers in zip(names or range(rows), *columns.values(), strict=True):
        table.writerow([name, *(f"{x:.9g}" for x in numbers)])
    return text.getvalue().encode()
