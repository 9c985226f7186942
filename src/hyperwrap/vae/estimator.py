"""A table of numbers in, coordinates out: the VAE in scikit-learn style.

The model is `model.VAE`; this file turns tables into tensors and latents into columns. A row is
placed at the centre ``exp₀(h)`` of its posterior, so ``|h|`` is its distance from the origin, and
every kind of coordinates is a function of ``h``.
"""

import copy
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.quasirandom import SobolEngine

from hyperwrap import charts, lorentz
from hyperwrap.errors import UserError, needs_extra
from hyperwrap.files import read_tensors, write_tensors
from hyperwrap.training import Loop, Progress, seeded, the_device
from hyperwrap.vae.latent import Coordinates, EuclideanLatent, HyperbolicLatent, Latent
from hyperwrap.vae.likelihoods import (
    Bernoulli,
    Counts,
    Gaussian,
    Likelihood,
    PerColumn,
    TwoPart,
    likelihood,
)
from hyperwrap.vae.model import VAE
from hyperwrap.vae.networks import mlp
from hyperwrap.vae.rows import Rows
from hyperwrap.vae.train import Shuffled, Training, mean_elbo, trainer

with needs_extra("sklearn"):
    from scipy.sparse import issparse
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils import Tags, check_array, check_random_state, gen_batches
    from sklearn.utils._set_output import _get_output_config
    from sklearn.utils.validation import check_is_fitted, validate_data

    from hyperwrap.vae.linear_start import start_linear

__all__ = ["HyperbolicVAE"]

Array = NDArray[np.float64]

_LATENTS: dict[str, Callable[[int], Latent]] = {
    "hyperbolic": lambda n: HyperbolicLatent(n, coordinates="tangent"),
    "euclidean": EuclideanLatent,
}
# From tangent vectors h at the origin to coordinates, and from coordinates to points.
_COORDINATES: dict[str, Callable[[Tensor], Tensor]] = {
    "poincare": charts.poincare_of_tangent,
    "hyperboloid": lorentz.exp0,
    "tangent": lambda h: h,
}
_POINTS: dict[str, Callable[[Tensor], Tensor]] = {
    "poincare": charts.from_poincare,
    "hyperboloid": lambda x: lorentz.lift(x[..., 1:]),
    "tangent": lorentz.exp0,
}
_PATIENCE = 20  # epochs without anything better, then training ends
_AT_ONCE = 1024  # rows
_SAMPLES, _MOST_ELEMENTS = 128, 2**20  # latents per row, and numbers at once, for a score
_ROWS_TO_START = 2000
_MOST_HELD_BACK = 10_000
_LEAST_BATCH, _MOST_BATCH = 16, 128
_COLUMNS_FOR_FLOAT32 = 256
_COLUMNS_OF_COUNTS = 20  # at least; fewer may be a coincidence


class HyperbolicVAE(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Coordinates in hyperbolic space for the rows of a table, learned by a VAE.

    It takes what scikit-learn takes, NumPy arrays, data frames and sparse matrices, and an AnnData,
    of which it reads ``X`` and the names. It works in a pipeline or a grid search like any
    transformer. Sparse tables stay sparse, and an AnnData backed by a file stays on disk: only the
    rows of a batch are ever dense. The genes of an AnnData are found by their names.

    With the Gaussian likelihood, ``log p(x|z) = Σ_j log N(x_j; m_j(z), σ_j²)``: the decoder gives
    the means, and each column has a ``σ_j`` of its own, learned, the same for all rows. The columns
    are centred and scaled first, and `inverse_transform` and `score` undo that: units do not
    matter, and no scaler is needed in front. Principal components, and other columns in one unit,
    want ``scale=False``: they are then divided by one number and share one ``σ``. With the
    Bernoulli likelihood values have to lie in ``[0, 1]`` and are taken as they are. Counts, such as
    those of genes in cells, want "negative binomial" or "poisson": given the total of a row, the
    decoder says how it is shared out.

    The model starts as factor analysis (principal components with ``scale=False``), and a tenth of
    the rows, drawn at random, is held back from training. The model with the best ELBO there is
    kept, be it the start, and training ends early if nothing better has come for 20 epochs:
    otherwise small tables would be learned by heart.

    Args:
        n_components: the dimension of the latent space.
        geometry: "hyperbolic", or "euclidean" for the vanilla VAE to compare with.
        coordinates: what `transform` returns: "poincare" (``n_components`` columns, in the unit
            ball, to draw), "hyperboloid" (``n_components + 1`` columns, the points of `hw.lorentz`)
            or "tangent" (``n_components`` columns, whose norm is the radius). The three are the
            same for a Euclidean latent space. It may be changed after fitting.
        likelihood: "gaussian", "bernoulli" for values between 0 and 1, "poisson" or "negative
            binomial" for counts; or a likelihood object.
        scale: with the Gaussian likelihood, whether each column has its own unit and its own noise.
        beta: the weight of the KL term.
        hidden_layer_sizes: sizes of the hidden layers of the encoder; the decoder has them in
            reverse.
        dropout: the share of the hidden units that are left out in each step of training.
        max_iter: for how many epochs to train, at most.
        batch_size: rows per batch; "auto" is a sixteenth of the rows, but from 16 to 128.
        learning_rate_init: the learning rate of Adam for the first half; then it falls to 0.
        validation_fraction: the share of the rows held back, 10,000 at most; 0 trains on all and
            keeps the last model.
        device: where to train, "cpu" or "cuda". The fitted model is on the CPU.
        random_state: a seed, with which the same table gives the same model; or a NumPy
            ``RandomState``; or None for NumPy's own. The random numbers of torch are left alone.
        verbose: whether to print a line per epoch.

    Attributes:
        model_: the fitted `hw.VAE`, in float64, of the rows ``(x − mean_) / scale_``.
        mean_: what is subtracted from each column.
        scale_: what each column is then divided by.
        total_: the median total of a row of counts, which `inverse_transform` gives its rows; 1 for
            other likelihoods.
        n_iter_: the number of epochs after which the model was kept.
        history_: lists with a number per epoch: "elbo", "reconstruction" and "kl" in training, and
            "validation_elbo".
        n_features_in_: how many columns the table had.
        feature_names_in_: their names, if they had any.

    >>> import numpy as np
    >>> from hyperwrap import HyperbolicVAE
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> vae = HyperbolicVAE(n_components=2, max_iter=5, random_state=0).fit(X)
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
        scale: bool = True,
        beta: float = 1.0,
        hidden_layer_sizes: Sequence[int] = (64, 64),
        dropout: float = 0.1,
        max_iter: int = 200,
        batch_size: int | Literal["auto"] = "auto",
        learning_rate_init: float = 2e-3,
        validation_fraction: float = 0.1,
        device: str = "cpu",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.geometry = geometry
        self.coordinates = coordinates
        self.likelihood = likelihood
        self.scale = scale
        self.beta = beta
        self.hidden_layer_sizes = hidden_layer_sizes
        self.dropout = dropout
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    # --- learning ----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> "HyperbolicVAE":
        """Learns from the rows of ``X``; ``y`` is ignored."""
        rows, seed, order = self._begun(X)
        held = min(int(self.validation_fraction * len(rows)), _MOST_HELD_BACK)
        held_back, rest = rows.some(order[:held]), rows.some(order[held:])
        model = self._started(rest, seed)
        self.n_iter_ = self._train(model, rest, held_back if held else None, seed)
        self._adam: dict[str, Tensor] = {}
        self.model_ = model.cpu().double()
        return self

    def partial_fit(self, X: Any, y: Any = None) -> "HyperbolicVAE":
        """Learns from the rows of ``X`` in one epoch, and holds none back.

        The first call decides how columns are centred and scaled, and where the model starts.
        """
        if not hasattr(self, "model_"):
            rows, seed, _ = self._begun(X)
            model, self.n_iter_, adam = self._started(rows, seed), 0, {}
        else:
            rows, model, adam = self._rows(X, self.device), self.model_.float(), self._adam
            seed = self._seed + self.n_iter_
        loop = self._loop(model.to(self.device), rows, None, seed, epochs=1, decay=False)
        for name, t in loop.task.state().items():
            t.copy_(adam.get(name, t))
        for progress in loop.run():
            self._note(progress)
        self._adam = {n: t.clone() for n, t in loop.task.state().items() if n.startswith("adam")}
        self.n_iter_ += 1
        self.model_ = model.cpu().double()
        return self

    def _begun(self, X: Any) -> tuple[Rows, int, NDArray[np.int64]]:
        """The rows to learn from, a seed, and the rows in a random order."""
        the_device(self.device)  # or an error, before anything is done
        table, columns = self._table(X, fitting=True)
        law = likelihood(self.likelihood)
        self.mean_, self.scale_, self.total_ = self._measured(table, law)
        random = check_random_state(self.random_state)
        order, self._seed = random.permutation(table.shape[0]), int(random.randint(2**30))
        self.history_: dict[str, list[float]] = {}
        return Rows(table, self.mean_, self.scale_, columns, device=self.device), self._seed, order

    def _measured(self, table: Any, law: Likelihood) -> tuple[Array, Array, float]:
        """What is subtracted from the columns, what they are divided by, and the median total."""
        zero, one = np.zeros(table.shape[1]), np.ones(table.shape[1])
        if isinstance(law, Counts):
            totals = [np.asarray(part.sum(1)).ravel() for part in _raw_parts(table)]
            return zero, one, float(np.median(np.concatenate(totals)))
        if not law.rescalable:
            return zero, one, 1.0
        found: Any = StandardScaler(with_mean=False)  # so it takes sparse tables, too
        for part in _raw_parts(table):
            found.partial_fit(part)
        if self.scale:
            return found.mean_, found.scale_, 1.0
        return found.mean_, one * (np.sqrt(found.var_.mean()) or 1.0), 1.0

    def _started(self, rows: Rows, seed: int) -> VAE:
        with seeded(seed):
            model = self._vae(len(rows.mean))
        if _starts_linear(model.likelihood):
            some = np.random.default_rng(seed).permutation(len(rows))[:_ROWS_TO_START]
            x = rows[torch.from_numpy(np.sort(some))].cpu()
            start_linear(model, x, shared=not self.scale, seed=seed)
        return model.to(self.device)

    def _vae(self, columns: int) -> VAE:
        latent, hidden = _LATENTS[self.geometry](self.n_components), list(self.hidden_layer_sizes)
        law = likelihood(self.likelihood)
        if isinstance(law, TwoPart):
            law = PerColumn(law, columns, shared=not self.scale and isinstance(law, Gaussian))
        options: Any = {"dropout": self.dropout, "beside_linear": _starts_linear(law)}
        encoder = mlp([columns, *hidden, latent.encoder_outputs], **options)
        outputs = law.outputs((columns,))[0]
        decoder = mlp([latent.decoder_inputs, *reversed(hidden), outputs], **options)
        return VAE(encoder, decoder, latent, law, self.beta)

    def _batch(self, rows: int) -> int:
        if isinstance(self.batch_size, int | np.integer):
            return int(self.batch_size)
        return max(_LEAST_BATCH, min(rows // 16, _MOST_BATCH))

    def _loop(
        self, model: VAE, rows: Rows, held_back: Rows | None, seed: int, *, epochs: int, decay: bool
    ) -> Loop[Any]:
        batch = self._batch(len(rows))
        every = max(1, len(rows) // batch)
        return trainer(
            model,
            Shuffled(rows, batch, seed),
            Training(epochs * every, self.learning_rate_init, decay=decay, seed=seed),
            report_every=every,
            validation=held_back,
            validate_every=every,
        )

    def _train(self, model: VAE, rows: Rows, held_back: Rows | None, seed: int) -> int:
        """Leaves the model as it was at its best; returns after how many epochs that was."""
        loop = self._loop(model, rows, held_back, seed, epochs=self.max_iter, decay=True)
        every = loop.task.steps // self.max_iter
        if held_back is not None:
            loop.best.offer(mean_elbo(model, held_back, seed), 0)
        for progress in loop.run():
            self._note(progress)
            if progress.score and progress.done - int(loop.best.steps) >= _PATIENCE * every:
                break
        loop.best.restore()
        return max(1, int(loop.best.steps) // every) if held_back is not None else self.max_iter

    def _note(self, progress: Progress) -> None:
        for name, number in progress.numbers.items():
            self.history_.setdefault(name, []).append(number)
        if self.verbose:
            numbers = ", ".join(f"{name} {number:.4g}" for name, number in progress.numbers.items())
            print(f"Epoch {len(self.history_['elbo'])}: {numbers}")

    # --- using what was learned --------------------------------------------------------------

    def transform(self, X: Any) -> Array:
        """The `coordinates` of each row, ``(rows, columns) → (rows, n)`` or ``(rows, n + 1)``.

        Always in float64: at the rim of the Poincaré ball float32 has no digits left.
        """
        h = self._encoded(X)[:, : self.model_.latent.n]
        places = (_COORDINATES[self.coordinates](h) if self._hyperbolic else h).numpy()
        return self._with_names(places, X)

    def radius(self, X: Any) -> Array:
        """How far each row lies from the origin of the latent space, ``(rows, columns) → (rows,)``.

        The origin is where the prior is centred; it is not a root unless the data make it one.
        """
        return torch.linalg.vector_norm(self._encoded(X)[:, : self.model_.latent.n], dim=-1).numpy()

    def spread(self, X: Any) -> Array:
        """How uncertain the place of each row is, ``(rows, columns) → (rows, n)``.

        The standard deviations of its posterior, in the frame that parallel transport from the
        origin carries to its centre.
        """
        return softplus(self._encoded(X)[:, self.model_.latent.n :]).numpy()

    @torch.no_grad()
    def inverse_transform(self, X: Any) -> Array:
        """The mean row at each place given in `coordinates`, ``(places, n) → (places, columns)``.

        ``inverse_transform(transform(X))`` is the reconstruction of ``X``.
        """
        check_is_fitted(self)
        self._require_parameters()
        places = torch.tensor(self._places(X))
        z = _POINTS[self.coordinates](places) if self._hyperbolic else places
        return self.model_.generate(z).numpy() * self.total_ * self.scale_ + self.mean_

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of `score_samples`; the higher, the better."""
        return float(self.score_samples(X).mean())

    def score_samples(self, X: Any) -> Array:
        """``log p(x)`` of each row, in nats, ``(rows, columns) → (rows,)``.

        Each is estimated by importance weighting with 128 latents, the same at every call. It is a
        density in the units of ``X`` (a probability for the Bernoulli likelihood and for counts,
        whose totals are taken as given), and so can be compared between geometries, dimensions and
        any ``beta``.
        """
        check_is_fitted(self)
        columns, noise = len(self.mean_), _noise(self.model_.latent.n)
        # Beside the sum over many columns the digits that float32 loses are nothing.
        dtype = torch.float32 if columns >= _COLUMNS_FOR_FLOAT32 else torch.float64
        decoder = copy.deepcopy(self.model_.decoder).to(dtype)
        law = copy.deepcopy(self.model_.likelihood)
        law = law.to(dtype) if isinstance(law, nn.Module) else law
        at_once = max(1, _MOST_ELEMENTS // (_SAMPLES * columns))
        parts = [
            self._log_density(x, noise, decoder, law, dtype) for x in self._rows(X).exact(at_once)
        ]
        return torch.cat(parts).numpy() - np.log(self.scale_).sum()

    @torch.no_grad()
    def _log_density(
        self, x: Tensor, noise: Tensor, decoder: nn.Module, law: Likelihood, dtype: torch.dtype
    ) -> Tensor:
        """``log 1/S Σ_s p(x|z_s)p(z_s)/q(z_s|x)``, the latents from the same noise for all rows."""
        latent = self.model_.latent
        encoded = self.model_.encoder(self.model_.likelihood.for_encoder(x))
        step = softplus(encoded[:, latent.n :]) * noise
        centre = latent.centre(encoded)
        z = lorentz.wrap(centre, step) if self._hyperbolic else centre + step
        log_w = latent.prior().log_prob(z) - latent.posterior(encoded).log_prob(z)
        seen = latent.for_decoder(z).to(dtype)
        log_w += law.log_prob(decoder(seen), x.to(dtype), 1)
        return log_w.logsumexp(0) - np.log(len(noise))

    @torch.no_grad()
    def _encoded(self, X: Any) -> Tensor:
        """The encoder's output for each row, ``(rows, encoder_outputs)``."""
        check_is_fitted(self)
        model = self.model_
        parts = self._rows(X).exact(_AT_ONCE)
        return torch.cat([model.encoder(model.likelihood.for_encoder(x)) for x in parts])

    @property
    def _hyperbolic(self) -> bool:
        return isinstance(self.model_.latent, HyperbolicLatent)

    # --- on disk -----------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the fitted estimator to one safetensors file, whole or not at all.

        >>> X = np.random.default_rng(0).normal(size=(50, 5))
        >>> vae = HyperbolicVAE(max_iter=2, random_state=0).fit(X)
        >>> path = getfixture("tmp_path") / "vae.safetensors"
        >>> vae.save(path)
        >>> bool((HyperbolicVAE.load(path).transform(X) == vae.transform(X)).all())
        True
        """
        check_is_fitted(self)
        tensors = {f"model.{name}": t for name, t in self.model_.state_dict().items()}
        tensors |= {"mean": torch.from_numpy(self.mean_), "scale": torch.from_numpy(self.scale_)}
        write_tensors(Path(path), tensors, {"hyperbolic_vae": json.dumps(self._about())})

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "HyperbolicVAE":
        """The estimator that `save` wrote."""
        advice = "Use a file that `HyperbolicVAE.save` wrote."
        tensors, texts = read_tensors(Path(path), "an estimator", advice)
        if "hyperbolic_vae" not in texts:
            raise UserError(f"Expected an estimator in {path}; it holds something else. {advice}")
        about = json.loads(texts["hyperbolic_vae"])
        made = cls(**{**about["parameters"], "likelihood": likelihood(about["law"])})
        made.set_params(likelihood=about["parameters"]["likelihood"] or made.likelihood)
        made.mean_, made.scale_ = tensors.pop("mean").numpy(), tensors.pop("scale").numpy()
        with torch.random.fork_rng([]):  # first weights are drawn, and thrown away
            made.model_ = made._vae(len(made.mean_)).double().eval()
        made.model_.load_state_dict({n.removeprefix("model."): t for n, t in tensors.items()})
        made.n_features_in_ = len(made.mean_)
        made.n_iter_, made.total_, made.history_ = (
            about[n] for n in ("n_iter", "total", "history")
        )
        made._seed, made._adam = about["seed"], {}
        if about["names"] is not None:
            made.feature_names_in_ = np.array(about["names"], object)
        return made

    def _about(self) -> dict[str, Any]:
        """What is saved beside the tensors."""
        law = likelihood(self.likelihood).recipe()
        if law is None:
            raise UserError(
                "Expected a likelihood of hyperwrap, so that it can be found again; got "
                f"{self.likelihood!r}. Keep the model with `model_.save`."
            )
        given = self.get_params()
        given["likelihood"] = self.likelihood if isinstance(self.likelihood, str) else None
        seed = given["random_state"]
        given["random_state"] = int(seed) if isinstance(seed, int | np.integer) else None
        given["hidden_layer_sizes"] = list(map(int, self.hidden_layer_sizes))
        names = getattr(self, "feature_names_in_", None)
        return {
            "parameters": given,
            "law": law,
            "names": None if names is None else list(map(str, names)),
            "n_iter": int(self.n_iter_),
            "total": self.total_,
            "history": self.history_,
            "seed": self._seed,
        }

    # --- tables ------------------------------------------------------------------------------

    def _rows(self, X: Any, device: str = "cpu") -> Rows:
        table, columns = self._table(X)
        return Rows(table, self.mean_, self.scale_, columns, device=device)

    def _table(self, X: Any, *, fitting: bool = False) -> tuple[Any, NDArray[np.int64] | None]:
        """``X``, dense, sparse or on disk, and in which order to take its columns; or an error
        that says why not.
        """
        self._require_parameters()
        least = 2 if fitting else 1
        options: Any = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
        if not _is_anndata(X):
            table: Any = validate_data(self, X, reset=fitting, ensure_min_samples=least, **options)
            columns = None
        else:
            names = np.asarray(X.var_names, object)
            columns = None if fitting else self._aligned(names)
            table = X.X
            if not _is_on_disk(table):
                table = check_array(table, ensure_min_samples=least, **options)
            elif table.shape[0] < least:
                raise ValueError(f"Expected at least {least} rows; got {table.shape[0]}.")
            if fitting:
                self.feature_names_in_, self.n_features_in_ = names, len(names)
        law = likelihood(self.likelihood) if fitting else self.model_.likelihood
        for part in _raw_parts(table) if _is_on_disk(table) else [table]:
            law.require(check_array(part, **options) if _is_on_disk(table) else part)
        if fitting and isinstance(law, Gaussian) and _are_counts(table):
            warnings.warn(
                "Expected measurements, as the likelihood is gaussian; X holds counts. Use "
                'likelihood="negative binomial", or normalise and log-transform them.',
                UserWarning,
                stacklevel=4,
            )
        return table, columns

    def _aligned(self, names: NDArray[np.object_]) -> NDArray[np.int64] | None:
        """Where the columns that were fitted are among those with these names."""
        wanted = getattr(self, "feature_names_in_", None)
        if wanted is None or (len(wanted) == len(names) and (wanted == names).all()):
            return None
        place = {name: i for i, name in enumerate(names)}
        missing = [str(name) for name in wanted if name not in place]
        if missing:
            listed = ", ".join(missing[:5]) + (" …" if len(missing) > 5 else "")
            raise UserError(
                f"Expected the {len(wanted)} columns that were fitted; {len(missing)} are missing: "
                f"{listed}. Add them, or fit without them."
            )
        return np.array([place[name] for name in wanted])

    def _with_names(self, places: Array, X: Any) -> Any:
        """The places in a data frame with the names of the rows, if X is an AnnData and data frames
        are wanted.
        """
        if not _is_anndata(X) or _get_output_config("transform", self)["dense"] != "pandas":
            return places
        import pandas as pd

        return pd.DataFrame(places, index=X.obs_names, columns=self.get_feature_names_out())

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
            "dropout": (0 <= self.dropout < 1, "in [0, 1)"),
            "max_iter": (_at_least_1(self.max_iter), "an integer ≥ 1"),
            "batch_size": (
                self.batch_size == "auto" or _at_least_1(self.batch_size),
                "an integer ≥ 1 or 'auto'",
            ),
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


def _noise(n: int) -> Tensor:
    """Standard normal vectors, evenly spread, ``(samples, 1, n)``."""
    uniform = SobolEngine(n, scramble=True, seed=0).draw(_SAMPLES, dtype=torch.float64)
    return torch.special.ndtri(uniform.clamp(1e-9, 1 - 1e-9)).unsqueeze(1)


def _starts_linear(law: Likelihood) -> bool:
    """Whether a linear map of the latents means something to the likelihood."""
    return isinstance(law, PerColumn | Counts | Bernoulli)


def _is_anndata(X: Any) -> bool:
    return hasattr(type(X), "to_df") and hasattr(X, "var_names")


def _is_on_disk(table: Any) -> bool:
    return not isinstance(table, np.ndarray) and not issparse(table)


def _raw_parts(table: Any) -> Iterator[Any]:
    """The rows of a table as they are, a few at a time; one on disk comes into memory."""
    for part in gen_batches(table.shape[0], _AT_ONCE):
        yield table[part]


def _are_counts(table: Any) -> bool:
    """Whether the first rows look like counts: many columns, whole numbers, zeros among them."""
    some = table[: min(table.shape[0], _AT_ONCE)]
    some = some.toarray() if hasattr(some, "toarray") else some
    whole = some.min() == 0 and some.max() > 2 and not (some % 1).any()
    return bool(some.shape[1] >= _COLUMNS_OF_COUNTS and whole)
