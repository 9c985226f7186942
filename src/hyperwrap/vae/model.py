"""The variational autoencoder, hyperbolic or vanilla by its latent space (§4.1)."""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from hyperwrap.vae.latent import Latent
from hyperwrap.vae.objective import LIKELIHOODS, importance_weighted

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
        decoder: any module from ``(..., latent.decoder_inputs)`` to the parameters of ``p(x|z)``:
            logits shaped like a datum (Bernoulli), or mean and scale one after the other in the
            first event dimension (Gaussian).
        latent: `Hyperbolic` or `Euclidean`.
        likelihood: "bernoulli" or "gaussian".
        beta: weight of the KL term in the objective; a tensor gives each model of a stack its own.

    >>> latent = hw.Hyperbolic(2)
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
        likelihood: Literal["bernoulli", "gaussian"] = "bernoulli",
        beta: float | Tensor = 1.0,
    ) -> None:
        super().__init__()
        if likelihood not in LIKELIHOODS:
            raise ValueError(
                f"Expected `likelihood` {' or '.join(LIKELIHOODS)}; got {likelihood!r}."
            )
        self.encoder, self.decoder, self.latent = encoder, decoder, latent
        self.likelihood = likelihood
        self.register_buffer("beta", torch.as_tensor(beta, dtype=torch.get_default_dtype()))

    # --- what is trained ---------------------------------------------------------------------

    def objective(self, x: Tensor, num_samples: int = 1, *, beta: Tensor | None = None) -> Bound:
        """What to maximise: `elbo` with ``β`` in front of the KL term, one number a datum.

        With several samples the importance-weighted bound of Burda et al. (2016) takes its place.
        """
        beta = self.beta if beta is None else beta
        reconstruction, kl = self._terms(x, num_samples)
        weighted = reconstruction - beta * kl
        return Bound(importance_weighted(weighted), reconstruction.mean(0), kl.mean(0))

    def elbo(self, x: Tensor, num_samples: int = 1) -> Bound:
        """``E_q[log p(x|z)] − KL(q(z|x) ‖ p(z))`` of each datum (eq. 9), whatever ``β`` is."""
        reconstruction, kl = (term.mean(0) for term in self._terms(x, num_samples))
        return Bound(reconstruction - kl, reconstruction, kl)

    # --- how good it is ------------------------------------------------------------------------

    @torch.no_grad()
    def score(self, x: Tensor, num_samples: int = 500) -> Score:
        """`elbo` and `log_likelihood` of each datum from one set of samples, in bounded memory."""
        log_w = torch.cat([r - kl for r, kl in self._chunks(x, num_samples)])
        return Score(log_w.mean(0), importance_weighted(log_w))

    def log_likelihood(self, x: Tensor, num_samples: int = 500) -> Tensor:
        """``log p(x)`` of each datum by importance weighting with ``num_samples`` latents."""
        return self.score(x, num_samples).log_likelihood

    def _chunks(self, x: Tensor, num_samples: int) -> Iterator[tuple[Tensor, Tensor]]:
        at_once = max(1, min(num_samples, _MOST_ELEMENTS // max(x.numel(), 1)))
        for done in range(0, num_samples, at_once):
            yield self._terms(x, min(at_once, num_samples - done))

    # --- what it is for --------------------------------------------------------------------------

    def embed(self, x: Tensor) -> Tensor:
        """The centre of ``q(z|x)``: a point ``(..., n+1)``, or ``(..., n)`` in Euclidean space."""
        return self.latent.centre(self.encoder(x))

    def generate(self, z: Tensor) -> Tensor:
        """The mean of ``p(x|z)``."""
        output = self.decoder(self.latent.for_decoder(z))
        if self.likelihood == "bernoulli":
            return output.sigmoid()
        return output.chunk(2, dim=1 - z.dim() - (output.dim() - z.dim()))[0]

    def reconstruct(self, x: Tensor) -> Tensor:
        """The mean of ``p(x|z)`` at the centre of ``q(z|x)``."""
        return self.generate(self.embed(x))

    def interpolate(self, a: Tensor, b: Tensor, steps: int) -> Tensor:
        """``steps`` latents along the geodesic between two, both included, ``(steps, ..., d)``."""
        t = torch.linspace(0, 1, steps, device=a.device)
        return self.latent.geodesic(a, b, t.view(-1, *[1] * (a.dim() - 1)))

    # --- the two terms -----------------------------------------------------------------------

    def _terms(self, x: Tensor, num_samples: int) -> tuple[Tensor, Tensor]:
        """``log p(x|z)`` and ``log q(z|x) − log p(z)``, ``(num_samples, ..., batch)``."""
        encoded = self.encoder(x)
        event_dim = x.dim() - (encoded.dim() - 1)
        z, log_q, log_p = self.latent.sample(encoded, (num_samples,))
        output = _over_samples(self.decoder, self.latent.for_decoder(z))
        return LIKELIHOODS[self.likelihood](output, x, event_dim), log_q - log_p


def _over_samples(decoder: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """``decoder`` over latents ``(samples, *stack, batch, d)``, the samples taken as more batch."""
    samples, *stack, batch, _ = z.shape
    folded = z[0] if samples == 1 else z.movedim(0, -3).flatten(-3, -2)
    output = decoder(folded)
    if samples == 1:
        return output.unsqueeze(0)
    return output.unflatten(len(stack), (samples, batch)).movedim(len(stack), 0)
