"""A table of numbers in, coordinates out: the VAE in scikit-learn style.

The model is `model.VAE`; this file turns tables into tensors and latents into columns. A row is
placed at the centre ``exp₀(h)`` of its posterior, so ``|h|`` is its distance from the origin, and
every kind of coordinates is a function of ``h``.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hyperwrap import charts, lorentz
from hyperwrap.errors import needs_extra
from hyperwrap.training import seeded
from hyperwrap.vae.latent import Coordinates, EuclideanLatent, HyperbolicLatent, Latent
from hyperwrap.vae.likelihoods import Gaussian, Likelihood, likelihood
from hyperwrap.vae.model import VAE
from hyperwrap.vae.networks import mlp
from hyperwrap.vae.train import Shuffled, Training, trainer

with needs_extra("sklearn"):
    from scipy.sparse import issparse
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils import Tags, check_array, check_random_state, gen_batches
    from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = ["HyperbolicVAE"]

Array = NDArray[np.float64]

_LATENTS: dict[str, Callable[[int], Latent]] = {
    "hyperbolic": HyperbolicLatent,
    "euclidean": EuclideanLatent,
}
# From tangent vectors h at the origin to coordinates, and from coordinates to points.
_COORDINATES: dict[str, Callable[[Tensor], Tensor]] = {
    "poincare": lambda h: charts.to_poincare(lorentz.exp0(h)),
    "hyperboloid": lorentz.exp0,
    "tangent": lambda h: h,
}
_POINTS: dict[str, Callable[[Tensor], Tensor]] = {
    "poincare": charts.from_poincare,
    "hyperboloid": lambda x: lorentz.lift(x[..., 1:]),
    "tangent": lorentz.exp0,
}
_LOOKS = 40  # at the rows held back, in the course of a training
_PATIENCE = 10  # looks without anything better, then training ends
_AT_ONCE = 1024  # rows


class HyperbolicVAE(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Coordinates in hyperbolic space for the rows of a table, learned by a VAE.

    It takes what scikit-learn takes, NumPy arrays, data frames and sparse matrices, and an AnnData,
    of which it reads ``X`` and the names of the variables. It works in a pipeline or a grid
    search like any transformer.

    With the Gaussian likelihood, ``log p(x|z) = Σ_j log N(x_j; m_j(z), σ_j²)``: the decoder gives
    the means, and each column has a ``σ_j`` of its own, learned, the same for all rows. The
    columns are centred and scaled to a standard deviation of 1 before anything else, and
    `inverse_transform` and `score` undo that: units do not matter, and no scaler is needed in
    front. With the Bernoulli likelihood values have to lie in ``[0, 1]`` and are taken as they are.

    A tenth of the rows, drawn at random, is held back from training. The model with the best ELBO
    there is kept, and training ends early if nothing better has come for a quarter of its steps:
    otherwise small tables would be learned by heart.

    Args:
        n_components: the dimension of the latent space.
        geometry: "hyperbolic", or "euclidean" for the vanilla VAE to compare with.
        coordinates: what `transform` returns: "poincare" (``n_components`` columns, in the unit
            ball, to draw), "hyperboloid" (``n_components + 1`` columns, the points of `hw.lorentz`)
            or "tangent" (``n_components`` columns, whose norm is the radius). The three are the
            same for a Euclidean latent space. It may be changed after fitting.
        likelihood: "gaussian", or "bernoulli" for values between 0 and 1.
        beta: the weight of the KL term.
        hidden_layer_sizes: sizes of the hidden layers of the encoder; the decoder has them in
            reverse.
        max_iter: how many batches to train on, at most.
        batch_size: rows per batch; all of them if there are fewer.
        learning_rate_init: the learning rate of Adam for the first half; then it falls to 0.
        validation_fraction: the share of the rows held back; 0 trains on all and keeps the last
            model.
        device: where to train, "cpu" or "cuda". The fitted model is on the CPU.
        random_state: a seed, with which the same table gives the same model; or a NumPy
            ``RandomState``; or None for NumPy's own. The random numbers of torch are left alone.

    Attributes:
        model_: the fitted `hw.VAE`, in float64, of the rows ``(x − mean_) / scale_``.
        mean_: what is subtracted from each column.
        scale_: what each column is then divided by.
        n_iter_: the number of batches after which the model was kept.
        n_features_in_: how many columns the table had.
        feature_names_in_: their names, if they had any.

    >>> import numpy as np
    >>> from hyperwrap import HyperbolicVAE
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> vae = HyperbolicVAE(n_components=2, max_iter=50, random_state=0).fit(X)
    >>> vae.transform(X).shape, vae.radius(X).shape
    ((100, 2), (100,))
    """

    feature_names_in_: NDArray[np.object_]

    def __init__(
        self,
        n_components: int = 2,
        *,
        geometry: Literal["hyperbolic", "euclidean"] = "hyperbolic",
        coordinates: Coordinates = "poincare",
        likelihood: str | Likelihood = "gaussian",
        beta: float = 1.0,
        hidden_layer_sizes: Sequence[int] = (64, 64),
        max_iter: int = 2000,
        batch_size: int = 128,
        learning_rate_init: float = 2e-3,
        validation_fraction: float = 0.1,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.geometry = geometry
        self.coordinates = coordinates
        self.likelihood = likelihood
        self.beta = beta
        self.hidden_layer_sizes = hidden_layer_sizes
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state

    # --- learning ----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> "HyperbolicVAE":
        """Learns from the rows of ``X``; ``y`` is ignored."""
        table = self._table(X, fitting=True)
        self.mean_, self.scale_ = self._mean_and_scale(table)
        random = check_random_state(self.random_state)
        order, seed = random.permutation(table.shape[0]), int(random.randint(2**31))
        x = torch.cat([part.to(self.device, torch.float32) for part in self._parts(table[order])])
        with seeded(seed):
            model = self._vae(table.shape[1]).to(x)
        self.n_iter_ = self._train(model, x, seed)
        self.model_ = model.cpu().double()
        return self

    def _mean_and_scale(self, table: Any) -> tuple[Array, Array]:
        if not likelihood(self.likelihood).rescalable:
            return np.zeros(table.shape[1]), np.ones(table.shape[1])
        # Told not to centre, it takes sparse tables too, and finds the mean all the same.
        found: Any = StandardScaler(with_mean=False).fit(table)
        return found.mean_, found.scale_

    def _vae(self, columns: int) -> VAE:
        latent, hidden = _LATENTS[self.geometry](self.n_components), list(self.hidden_layer_sizes)
        law = likelihood(self.likelihood)
        one_noise = isinstance(law, Gaussian)
        outputs = columns if one_noise else law.outputs((columns,))[0]
        encoder = mlp([columns, *hidden, latent.encoder_outputs])
        decoder: nn.Module = mlp([latent.decoder_inputs, *reversed(hidden), outputs])
        if one_noise:
            decoder = _MeanAndNoise(decoder, columns)
        return VAE(encoder, decoder, latent, law, self.beta)

    def _train(self, model: VAE, x: Tensor, seed: int) -> int:
        """Leaves the model as it was at its best; returns after how many steps that was."""
        held_back, rest = x.tensor_split([int(self.validation_fraction * len(x))])
        every = max(1, self.max_iter // _LOOKS)
        loop = trainer(
            model,
            Shuffled(rest, self.batch_size, seed),
            Training(self.max_iter, self.learning_rate_init, decay=True, seed=seed),
            report_every=every,
            validation=held_back if len(held_back) else None,
            validate_every=every,
        )
        for progress in loop.run():
            if progress.score and progress.done - int(loop.best.steps) >= _PATIENCE * every:
                break
        loop.best.restore()
        return int(loop.best.steps) or self.max_iter

    # --- using what was learned --------------------------------------------------------------

    def transform(self, X: Any) -> Array:
        """The `coordinates` of each row, ``(rows, columns) → (rows, n)`` or ``(rows, n + 1)``.

        Always in float64: at the rim of the Poincaré ball float32 has no digits left.
        """
        h = self._tangent(X)
        return (_COORDINATES[self.coordinates](h) if self._hyperbolic else h).numpy()

    def radius(self, X: Any) -> Array:
        """How far each row lies from the origin of the latent space, ``(rows, columns) → (rows,)``.

        The origin is where the prior is centred; it is not a root unless the data make it one.
        """
        return torch.linalg.vector_norm(self._tangent(X), dim=-1).numpy()

    @torch.no_grad()
    def inverse_transform(self, X: Any) -> Array:
        """The mean row at each place given in `coordinates`, ``(places, n) → (places, columns)``.

        ``inverse_transform(transform(X))`` is the reconstruction of ``X``.
        """
        check_is_fitted(self)
        self._require_parameters()
        places = torch.tensor(self._places(X))
        z = _POINTS[self.coordinates](places) if self._hyperbolic else places
        return self.model_.generate(z).numpy() * self.scale_ + self.mean_

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of ``log p(x)`` over the rows, in nats; the higher, the better.

        Each is estimated by importance weighting with 100 latents, the same at every call. It is a
        density in the units of ``X`` (a probability, if the likelihood is Bernoulli), and so can be
        compared between geometries, dimensions and any ``beta``.
        """
        check_is_fitted(self)
        with seeded(0):
            parts = [self.model_.log_likelihood(x, 100) for x in self._parts(self._table(X))]
        return (torch.cat(parts).mean() - np.log(self.scale_).sum()).item()

    @torch.no_grad()
    def _tangent(self, X: Any) -> Tensor:
        """``h`` of each row, ``(rows, dim)``."""
        check_is_fitted(self)
        parts = self._parts(self._table(X))
        return torch.cat([self.model_.encoder(x)[..., : self.model_.latent.n] for x in parts])

    @property
    def _hyperbolic(self) -> bool:
        return isinstance(self.model_.latent, HyperbolicLatent)

    # --- tables ------------------------------------------------------------------------------

    def _table(self, X: Any, *, fitting: bool = False) -> Any:
        """``X`` as floats, dense or in rows of a sparse matrix, or an error that says why not."""
        self._require_parameters()
        X = X.to_df() if hasattr(type(X), "to_df") else X  # an AnnData
        table: Any = validate_data(
            self,
            X,
            reset=fitting,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_min_samples=2 if fitting else 1,
        )
        (likelihood(self.likelihood) if fitting else self.model_.likelihood).require(table)
        return table

    def _parts(self, table: Any) -> Iterator[Tensor]:
        """The table as the model sees it, a few rows at a time."""
        for part in gen_batches(table.shape[0], _AT_ONCE):
            rows = table[part].toarray() if issparse(table) else table[part]
            yield torch.from_numpy((rows - self.mean_) / self.scale_)

    def _places(self, X: Any) -> Array:
        places = check_array(X, dtype="float64")
        if places.shape[1] != self._n_features_out:
            raise ValueError(
                f"Expected {self._n_features_out} columns, as `transform` gives them; got "
                f"{places.shape[1]}."
            )
        radius = np.linalg.norm(places, axis=1).max()
        if self._hyperbolic and self.coordinates == "poincare" and radius >= 1:
            raise ValueError(
                f"Expected places inside the unit ball; got one at radius {radius:.6g}. "
                "For vectors of any length, use coordinates='tangent'."
            )
        return places

    # --- what scikit-learn asks --------------------------------------------------------------

    @property
    def _n_features_out(self) -> int:
        return self.model_.latent.n + (self._hyperbolic and self.coordinates == "hyperboloid")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _require_parameters(self) -> None:
        """Raises a `ValueError` for the first parameter that makes no sense."""
        sizes = self.hidden_layer_sizes
        required = {
            "n_components": (_at_least_1(self.n_components), "an integer ≥ 1"),
            "geometry": (self.geometry in _LATENTS, " or ".join(_LATENTS)),
            "coordinates": (self.coordinates in _COORDINATES, " or ".join(_COORDINATES)),
            "beta": (self.beta >= 0, "≥ 0"),
            "hidden_layer_sizes": (_are_sizes(sizes), "a sequence of integers ≥ 1"),
            "max_iter": (_at_least_1(self.max_iter), "an integer ≥ 1"),
            "batch_size": (_at_least_1(self.batch_size), "an integer ≥ 1"),
            "learning_rate_init": (self.learning_rate_init > 0, "> 0"),
            "validation_fraction": (0 <= self.validation_fraction < 1, "in [0, 1)"),
        }
        for name, (fine, wanted) in required.items():
            if not fine:
                raise ValueError(f"Expected `{name}` {wanted}; got {getattr(self, name)!r}.")


def _at_least_1(number: Any) -> bool:
    return isinstance(number, int | np.integer) and bool(number >= 1)


def _are_sizes(numbers: Any) -> bool:
    return isinstance(numbers, Iterable) and all(map(_at_least_1, numbers))


class _MeanAndNoise(nn.Module):
    """A decoder of means, and beside them one ``s`` per column, the same at every latent."""

    def __init__(self, mean: nn.Module, columns: int) -> None:
        super().__init__()
        self.mean = mean
        self.s = nn.Parameter(torch.zeros(columns))

    def forward(self, z: Tensor) -> Tensor:
        mean = self.mean(z)
        return torch.cat([mean, self.s.expand_as(mean)], -1)
