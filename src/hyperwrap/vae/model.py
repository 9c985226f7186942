"""The variational autoencoder, hyperbolic or vanilla depending on its latent space (§4.1)."""

import json
from collections.abc import Iterator
from math import log
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from hyperwrap.errors import UserError
from hyperwrap.files import read_tensors, write_tensors
from hyperwrap.precision import at_least_float32, no_autocast
from hyperwrap.vae import likelihoods
from hyperwrap.vae.latent import EuclideanLatent, HyperbolicLatent, Latent
from hyperwrap.vae.likelihoods import Likelihood
from hyperwrap.vae.networks import Linear, rebuilt

__all__ = ["VAE", "Bound", "Score"]

_MOST_ELEMENTS = 2**26  # of decoder output at once, when many samples are scored


class Bound(NamedTuple):
    """The ELBO of each datum and its two parts: ``elbo = reconstruction − kl``."""

    elbo: Tensor
    reconstruction: Tensor
    kl: Tensor


class Score(NamedTuple):
    """ELBO and importance-weighted log-likelihood of each datum, from the same samples."""

    elbo: Tensor
    log_likelihood: Tensor


class VAE(nn.Module):
    """A variational autoencoder ``p(x|z)p(z)`` with posterior ``q(z|x)``.

    Args:
        encoder: any module from data ``(..., *event)`` to ``(..., latent.encoder_outputs)``.
        decoder: any module from ``(..., latent.decoder_inputs)`` to the parameters of ``p(x|z)``,
            ``(..., *likelihood.outputs(event))``.
        latent: `HyperbolicLatent` or `EuclideanLatent`.
        likelihood: `hw.vae.Bernoulli`, `hw.vae.Gaussian` or a `hw.vae.Likelihood` of your own;
            "bernoulli" and "gaussian" are short for the first two.
        beta: weight of the KL term in the objective; a tensor shaped like the stack gives each
            model its own.

    >>> latent = hw.HyperbolicLatent(2)
    >>> encoder, decoder = torch.nn.Linear(5, latent.encoder_outputs), torch.nn.Linear(3, 5)
    >>> vae = hw.VAE(encoder, decoder, latent)
    >>> vae.elbo(torch.ones(4, 5)).elbo.shape
    torch.Size([4])
    """

    beta: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        latent: Latent,
        likelihood: str | Likelihood = "bernoulli",
        beta: float | Tensor = 1.0,
    ) -> None:
        super().__init__()
        self.encoder, self.decoder, self.latent = encoder, decoder, latent
        self.likelihood = likelihoods.likelihood(likelihood)
        self.register_buffer("beta", torch.as_tensor(beta, dtype=torch.get_default_dtype()))

    def extra_repr(self) -> str:
        return f"likelihood={self.likelihood}, beta={self.beta.tolist()}"

    @property
    def stack(self) -> torch.Size:
        """The shape of the stack of models, ``()`` for one model."""
        shapes = (m.weight.shape[:-2] for m in self.modules() if isinstance(m, Linear))
        return next(shapes, torch.Size())

    # --- what is trained ---------------------------------------------------------------------

    def objective(self, x: Tensor, num_samples: int = 1, *, beta: Tensor | None = None) -> Bound:
        """What to maximise: `elbo` with ``β`` in front of the KL term, for each datum.

        With several samples the importance-weighted bound of Burda et al. (2016) takes its place.
        """
        beta = self.beta if beta is None else beta
        beta = beta.unsqueeze(-1) if beta.shape == self.stack else beta
        reconstruction, kl = self._terms(x, num_samples)
        weighted = reconstruction - beta * kl
        return Bound(_importance_weighted(weighted), reconstruction.mean(0), kl.mean(0))

    def elbo(self, x: Tensor, num_samples: int = 1) -> Bound:
        """``E_q[log p(x|z)] − KL(q(z|x) ‖ p(z))`` of each datum (eq. 9), whatever ``β`` is."""
        reconstruction, kl = (term.mean(0) for term in self._terms(x, num_samples))
        return Bound(reconstruction - kl, reconstruction, kl)

    # --- how good it is ------------------------------------------------------------------------

    @torch.no_grad()
    def score(self, x: Tensor, num_samples: int = 500) -> Score:
        """`elbo` and `log_likelihood` of each datum from one set of samples, in bounded memory."""
        log_w = torch.cat([r - kl for r, kl in self._chunks(x, num_samples)])
        return Score(log_w.mean(0), _importance_weighted(log_w))

    def log_likelihood(self, x: Tensor, num_samples: int = 500) -> Tensor:
        """``log p(x)`` of each datum by importance weighting with ``num_samples`` latents."""
        return self.score(x, num_samples).log_likelihood

    def _chunks(self, x: Tensor, num_samples: int) -> Iterator[tuple[Tensor, Tensor]]:
        _require_samples(num_samples)
        at_once = max(1, min(num_samples, _MOST_ELEMENTS // max(x.numel(), 1)))
        for done in range(0, num_samples, at_once):
            yield self._terms(x, min(at_once, num_samples - done))

    # --- what it is for --------------------------------------------------------------------------

    def embed(self, x: Tensor) -> Tensor:
        """The centre of ``q(z|x)``: a point ``(..., n+1)``, or ``(..., n)`` in Euclidean space."""
        encoded = self._encoded(x)
        with no_autocast(encoded):
            return self.latent.centre(encoded)

    def generate(self, z: Tensor) -> Tensor:
        """The mean of ``p(x|z)``."""
        output = self._decoded(z)
        return self.likelihood.mean(output, output.dim() - z.dim() + 1)

    def reconstruct(self, x: Tensor) -> Tensor:
        """The mean of ``p(x|z)`` at the centre of ``q(z|x)``."""
        return self.generate(self.embed(x))

    def interpolate(self, a: Tensor, b: Tensor, steps: int) -> Tensor:
        """``steps`` latents along the geodesic between two, both included, ``(steps, ..., d)``."""
        t = torch.linspace(0, 1, steps, dtype=a.dtype, device=a.device)
        return self.latent.geodesic(a, b, t.view(-1, *[1] * (a.dim() - 1)))

    # --- the two terms -----------------------------------------------------------------------

    def _terms(self, x: Tensor, num_samples: int) -> tuple[Tensor, Tensor]:
        """``log p(x|z)`` and ``log q(z|x) − log p(z)``, ``(num_samples, ..., batch)``."""
        _require_samples(num_samples)
        encoded = self._encoded(x)
        with no_autocast(encoded):
            z, log_q, log_p = self.latent.rsample(encoded, (num_samples,))
        output = self._decoded(z)
        event_dim = output.dim() - encoded.dim()
        self._require_output(output, x.shape[x.dim() - event_dim :])
        return self.likelihood.log_prob(output, x, event_dim), log_q - log_p

    def _encoded(self, x: Tensor) -> Tensor:
        encoded = at_least_float32(self.encoder(self.likelihood.for_encoder(x)))
        if encoded.shape[-1] != self.latent.encoder_outputs:
            raise ValueError(
                f"Expected {self.latent.encoder_outputs} numbers per row from the encoder, as "
                f"the latent space requires; got {encoded.shape[-1]}."
            )
        return encoded

    def _require_output(self, output: Tensor, event: torch.Size) -> None:
        """Raises a `ValueError` if the decoder's output does not describe such data."""
        wanted, got = self.likelihood.outputs(event), output.shape[output.dim() - len(event) :]
        if got != wanted:
            raise ValueError(
                f"Expected output of shape {wanted} per row from the decoder, as the likelihood "
                f"is {self.likelihood.name}; got shape {tuple(got)}."
            )

    def _decoded(self, z: Tensor) -> Tensor:
        """The decoder's output for latents ``(*more, *stack, batch, d)``, ``more`` as batch."""
        with no_autocast(z):
            z = self.latent.for_decoder(z)
        own = len(self.stack) + 1
        more = z.dim() - 1 - own
        if more <= 0:
            return at_least_float32(self.decoder(z))
        folded = z.flatten(0, more - 1).movedim(0, own - 1).flatten(own - 1, own)
        output = at_least_float32(self.decoder(folded))
        output = output.unflatten(own - 1, (-1, z.shape[more + own - 1])).movedim(own - 1, 0)
        return output.unflatten(0, z.shape[:more])

    # --- on disk -------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the model to one safetensors file, whole or not at all.

        >>> encoder, decoder = hw.vae.mlp([5, 8, 4]), hw.vae.mlp([3, 8, 5])
        >>> path = getfixture("tmp_path") / "model.safetensors"
        >>> hw.VAE(encoder, decoder, hw.HyperbolicLatent(2)).save(path)
        >>> hw.VAE.load(path).latent
        HyperbolicLatent(n=2, covariance='diagonal', coordinates='hyperboloid', c=1.0)
        """
        write_tensors(Path(path), self.state_dict(), {"vae": json.dumps(self._config())})

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        encoder: nn.Module | None = None,
        decoder: nn.Module | None = None,
        latent: Latent | None = None,
        likelihood: Likelihood | None = None,
    ) -> Self:
        """The model that `save` wrote, on the CPU and ready to be used (`eval`).

        Whatever hyperwrap made (`mlp`, `dcgan`, its latents and likelihoods) is rebuilt; modules of
        your own have to be passed, and receive the weights in the file.

        Args:
            path: the file, or the folder of a run that holds ``model.safetensors``.
            encoder: replaces the one that was saved.
            decoder: likewise.
            latent: likewise.
            likelihood: likewise.
        """
        path = Path(path) / "model.safetensors" if Path(path).is_dir() else Path(path)
        tensors, about = read_tensors(path, "a model", "Use a file that `VAE.save` wrote.")
        networks = {"encoder": encoder, "decoder": decoder}
        given = {**networks, "latent": latent, "likelihood": likelihood}
        try:
            config, beta = json.loads(about["vae"]), tensors["beta"]
            with torch.random.fork_rng([]):  # first weights are drawn, and thrown away
                parts = {name: _part(config, name, own, path) for name, own in given.items()}
            model = cls(**parts, beta=beta).to(beta.dtype)
        except UserError:
            raise
        except (KeyError, TypeError, ValueError):
            raise UserError(
                f"Expected a model in {path}; it is another kind of file. "
                "Use a file that `VAE.save` wrote."
            ) from None
        _load_weights(model, tensors, path)
        return model.eval()

    def _config(self) -> dict[str, Any]:
        """What the model is made of, as far as hyperwrap can make it."""
        return {
            "encoder": getattr(self.encoder, "recipe", None),
            "decoder": getattr(self.decoder, "recipe", None),
            "latent": _latent_recipe(self.latent),
            "likelihood": self.likelihood.recipe(),
        }


def _importance_weighted(log_weights: Tensor) -> Tensor:
    """``log (1/S) Σ_s w_s`` over the first dimension (Burda et al. 2016)."""
    return torch.logsumexp(log_weights, 0) - log(log_weights.shape[0])


def _require_samples(num_samples: int) -> None:
    if num_samples < 1:
        raise ValueError(f"Expected `num_samples` ≥ 1; got {num_samples}.")


# --- on disk -------------------------------------------------------------------------------------


def _part(config: dict[str, Any], name: str, given: Any, path: Path) -> Any:
    """A part of a saved model: as given, or rebuilt."""
    recipe = config[name]
    if given is not None:
        return given
    if recipe is None:
        raise UserError(
            f"Expected `{name}`, as the one saved in {path} was not made by hyperwrap; "
            f"got None. Pass it: VAE.load(path, {name}=...)."
        )
    make = {"latent": _latent, "likelihood": likelihoods.likelihood}.get(name, rebuilt)
    return make(recipe)


def _latent_recipe(latent: Latent) -> dict[str, Any] | None:
    recipe = {"n": latent.n, "covariance": latent.covariance}
    if type(latent) is EuclideanLatent:
        return {"space": "Euclidean", **recipe}
    if type(latent) is HyperbolicLatent:
        more = {"coordinates": latent.coordinates, "c": latent._c}
        return {"space": "Hyperbolic", **recipe, **more, "learn_c": latent.raw_c is not None}
    return None


def _latent(recipe: dict[str, Any]) -> Latent:
    options = dict(recipe)
    space = {"Euclidean": EuclideanLatent, "Hyperbolic": HyperbolicLatent}[options.pop("space")]
    return space(**options)


def _load_weights(model: VAE, tensors: dict[str, Tensor], path: Path) -> None:
    own = {name: t.shape for name, t in model.state_dict().items()}
    if own != {name: t.shape for name, t in tensors.items()}:
        raise UserError(
            f"Expected {path} to hold this model; its parameters have other names or shapes. "
            "Pass the modules that it was saved with."
        )
    model.load_state_dict(tensors)
