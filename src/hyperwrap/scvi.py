r"""scvi-tools' `SCVI` with a hyperbolic latent space.

The latent space is written in the tangent space at the origin: ``h = log₀(z)``. There the prior
``G(μ₀, I)`` is the standard normal itself, as it is in `scvi.module.VAE`, and ``|h|`` is the
distance from the origin. The posterior ``G(exp₀(m), diag σ²)`` is not normal there; its density
with respect to ``dh`` is that on ``H^n`` of curvature ``−c`` times the volume element:

    log q(h) = log G(exp₀(h); exp₀(m), diag σ²) + (n−1)·log(sinh(√c|h|) / (√c|h|))

So the posterior is all that differs from `SCVI`: encoder, decoder, likelihoods, covariates and
training are those of scvi-tools.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Size, Tensor
from torch.distributions import Distribution, Normal, constraints, register_kl

from hyperwrap import charts, lorentz
from hyperwrap.distributions import WrappedNormal
from hyperwrap.errors import UserError, needs_extra
from hyperwrap.special import log_sinhc_sqrt, squared_norm

with needs_extra("scvi"):
    from anndata import AnnData
    from scipy.sparse import issparse
    from scvi.data import AnnDataManager, AnnTorchDataset
    from scvi.model import SCVI
    from scvi.module import VAE

__all__ = ["HyperbolicModule", "HyperbolicSCVI", "TangentWrappedNormal"]

Likelihood = Literal["nb", "zinb", "poisson"]
_LIKELIHOODS = ("nb", "zinb", "poisson")
_AT_ONCE = 10_000  # cells, when counts are checked
_DECODED = 4096  # points, when they are decoded
_NAMED = 5  # genes or columns in a message


# --- the posterior -------------------------------------------------------------------------------


class TangentWrappedNormal(Distribution):
    """``G(exp₀(m), diag σ²)`` as a law of tangent vectors at the origin, ``h = log₀(z)``.

    scvi-tools sums what a latent law returns over the last dimension, taking it for the ``n``
    coordinates. Here it has one element: `log_prob` and ``kl_divergence`` are ``(..., 1)``.

    Args:
        loc: ``m``, ``(..., n)``.
        scale: ``σ``, ``(..., n)``.
        c: the curvature is ``−c``.
        validate_args: whether to check them.

    >>> q = TangentWrappedNormal(torch.zeros(4, 2), torch.ones(4, 2))
    >>> h = q.rsample()
    >>> h.shape, q.log_prob(h).shape
    (torch.Size([4, 2]), torch.Size([4, 1]))
    """

    arg_constraints: dict[str, constraints.Constraint] = {  # pyright: ignore # noqa: RUF012
        "loc": constraints.real_vector,
        "scale": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector  # pyright: ignore
    has_rsample = True

    def __init__(
        self, loc: Tensor, scale: Tensor, c: float = 1.0, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale = torch.broadcast_tensors(loc, scale)
        self.c = c
        self.law = WrappedNormal(tangent=self.loc, scale=self.scale, c=c, validate_args=False)
        super().__init__(self.law.batch_shape, self.loc.shape[-1:], validate_args)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Reparametrised draws of ``h``, ``(*sample_shape, ..., n)``."""
        return lorentz.log0(self.law.rsample(Size(sample_shape)), c=self.c)

    def log_prob(self, value: Tensor) -> Tensor:
        """``log q(h)`` with respect to ``dh``, ``(..., n) → (..., 1)``."""
        z = lorentz.exp0(value, c=self.c)
        return (self.law.log_prob(z) + self.log_volume(value)).unsqueeze(-1)

    def log_volume(self, h: Tensor) -> Tensor:
        """The log of the volume element of ``exp₀``, ``(n−1)·log(sinh(√c|h|) / (√c|h|))``."""
        return (h.shape[-1] - 1) * log_sinhc_sqrt(self.c * squared_norm(h))


@register_kl(TangentWrappedNormal, Normal)
def _kl(q: TangentWrappedNormal, p: Normal) -> Tensor:
    """``log q(h) − log p(h)`` at one draw, whose mean is the divergence, ``(..., 1)``."""
    z, log_q = q.law.rsample_and_log_prob()
    h = lorentz.log0(z, c=q.c)
    return (log_q + q.log_volume(h)).unsqueeze(-1) - p.log_prob(h).sum(-1, keepdim=True)


class HyperbolicModule(VAE):
    """scvi-tools' `VAE`, whose encoder's ``m`` and ``σ`` are those of ``G(exp₀(m), diag σ²)``.

    Decoder and loss are unchanged: the decoder is given ``h``, and the loss asks for
    ``kl_divergence(q, N(0, I))``.
    """

    def __init__(self, *args: Any, c: float = 1.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.c = c

    def inference(self, *args: Any, n_samples: int = 1, **kwargs: Any) -> dict[str, Any]:
        """What `VAE` infers, with the wrapped normal in place of the normal."""
        outputs = super().inference(*args, n_samples=n_samples, **kwargs)
        normal = outputs["qz"]
        q = TangentWrappedNormal(normal.loc, normal.scale, self.c, validate_args=False)
        h = q.rsample(() if n_samples == 1 else (n_samples,))
        return {**outputs, "qz": q, "z": h}


# --- cells in the order asked for ----------------------------------------------------------------


class _Cells(AnnTorchDataset):
    """Rows of a file in the order asked for; scvi-tools returns them as they lie in the file, so
    that a cell would get another's place, and training other noise than in memory.
    """

    def __getitem__(self, indexes: Any) -> dict[str, Any]:
        backed: Any = self.adata_manager.adata
        if not backed.isbacked or not isinstance(indexes, list | np.ndarray):
            return super().__getitem__(indexes)
        order = np.argsort(indexes)
        found = super().__getitem__(list(np.asarray(indexes)[order]))
        return {key: rows[order.argsort()] for key, rows in found.items()}


class _Manager(AnnDataManager):
    def create_torch_dataset(self, *args: Any, **kwargs: Any) -> Any:
        made: Any = super().create_torch_dataset(*args, **kwargs)
        (made.dataset if hasattr(made, "dataset") else made).__class__ = _Cells
        return made


# --- the model -----------------------------------------------------------------------------------


class HyperbolicSCVI(SCVI):
    r"""scvi-tools' `SCVI` with a wrapped normal in hyperbolic space as its latent.

    All that `SCVI` does, this does in the same way: ``setup_anndata`` with layers, batches and
    covariates, ``train`` with early stopping on one GPU or several, ``history``, ``save`` and
    ``load``, ``load_query_data``, ``get_normalized_expression``, ``differential_expression``.
    What differs:

    - The latent space is the hyperbolic plane, unless ``n_latent`` says otherwise.
    - `get_latent_representation` returns points of the Poincaré disc. With ``return_dist=True`` it
      returns the ``m`` and ``σ²`` of ``G(exp₀(m), diag σ²)``, in the unit in which the prior is
      the standard normal; ``√c|m|`` is the distance from the origin in the unit of the disc.
    - What cannot be counts is refused before anything is trained.
    - The networks have two hidden layers, and the likelihood is negative binomial.

    Args:
        adata: what `setup_anndata` was given.
        registry: in place of ``adata``, the registry of a data module that ``train`` is given.
        n_hidden: the width of the hidden layers.
        n_latent: the dimension of the hyperbolic space.
        c: the curvature is ``−c``, in the unit in which the prior has a standard deviation of 1:
            the larger, the more room there is for branches. With ``c → 0`` it becomes `SCVI`.
        n_layers: how many hidden layers encoder and decoder have.
        dropout_rate: of the encoder.
        dispersion: ``gene``, ``gene-batch``, ``gene-label`` or ``gene-cell``.
        gene_likelihood: ``nb``, ``zinb`` or ``poisson``.
        use_observed_lib_size: whether a cell's library size is its number of counts; otherwise
            it is inferred.
        kwargs: further keywords of `scvi.module.VAE`.

    >>> import hyperwrap.scanpy as hsc
    >>> adata = hsc.datasets.tree(200, 50)
    >>> HyperbolicSCVI.setup_anndata(adata, batch_key="batch")
    >>> model = HyperbolicSCVI(adata)
    >>> model.module.latent_distribution, model.module.n_latent
    ('normal', 2)
    """

    _module_cls = HyperbolicModule

    def __init__(
        self,
        adata: AnnData | None = None,
        registry: dict[str, Any] | None = None,
        n_hidden: int = 128,
        n_latent: int = 2,
        c: float = 4.0,
        n_layers: int = 2,
        dropout_rate: float = 0.1,
        dispersion: Literal["gene", "gene-batch", "gene-label", "gene-cell"] = "gene",
        gene_likelihood: Likelihood = "nb",
        use_observed_lib_size: bool = True,
        **kwargs: Any,
    ) -> None:
        if not c > 0:
            raise UserError(f"Expected `c` > 0 (the curvature is −c); got {c}.")
        if gene_likelihood not in _LIKELIHOODS:
            raise UserError(
                f"Expected `gene_likelihood` {', '.join(_LIKELIHOODS)}; got {gene_likelihood!r}."
            )
        if "latent_distribution" in kwargs:
            raise UserError(
                "Expected no `latent_distribution`: that of HyperbolicSCVI is a wrapped normal. "
                "For another, use scvi.model.SCVI."
            )
        super().__init__(
            adata,
            registry,
            n_hidden=n_hidden,
            n_latent=n_latent,
            n_layers=n_layers,
            dropout_rate=dropout_rate,
            dispersion=dispersion,
            gene_likelihood=gene_likelihood,
            use_observed_lib_size=use_observed_lib_size,
            c=c,
            **kwargs,
        )
        self._model_summary_string = (
            f"HyperbolicSCVI in {n_latent} dimensions of curvature {-c:g}, {n_layers} hidden "
            f"layers of {n_hidden}, dropout {dropout_rate}, dispersion by {dispersion}, "
            f"likelihood {gene_likelihood}."
        )
        self.init_params_ = self._get_init_params(locals())

    @classmethod
    def setup_anndata(
        cls,
        adata: AnnData,
        layer: str | None = None,
        batch_key: str | None = None,
        labels_key: str | None = None,
        size_factor_key: str | None = None,
        categorical_covariate_keys: list[str] | None = None,
        continuous_covariate_keys: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """Says which counts to model, and what else is known about the cells.

        Args:
            adata: the cells; sparse, dense, or backed by a file on disk.
            layer: the layer with the counts; by default ``X``.
            batch_key: the column of ``obs`` with the batch of each cell.
            labels_key: the column with its label, which only ``dispersion="gene-label"`` uses.
            size_factor_key: the column with its size factor, in place of the library size.
            categorical_covariate_keys: further columns that the decoder is given.
            continuous_covariate_keys: the same, of numbers.
            kwargs: what scvi-tools hands over when it sets up new data like old.
        """
        new = "source_registry" not in kwargs
        columns = [batch_key, labels_key, size_factor_key]
        columns += [*(categorical_covariate_keys or ()), *(continuous_covariate_keys or ())]
        require_columns(adata, [key for key in columns if key is not None])
        require_counts(adata, layer)
        if new:
            require_enough(adata, batch_key)
        super().setup_anndata(
            adata,
            layer=layer,
            batch_key=batch_key,
            labels_key=labels_key,
            size_factor_key=size_factor_key,
            categorical_covariate_keys=categorical_covariate_keys,
            continuous_covariate_keys=continuous_covariate_keys,
            **kwargs,
        )

    @classmethod
    def register_manager(cls, adata_manager: AnnDataManager) -> None:
        """Sees to it that cells come in the order asked for, from a file as from memory."""
        adata_manager.__class__ = _Manager  # which managers of further cells inherit
        super().register_manager(adata_manager)

    def get_latent_representation(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *args: Any, return_dist: bool = False, **kwargs: Any
    ) -> Any:
        """The cells on the Poincaré disc, ``(cells, n)``: the centres of their posteriors.

        Args:
            args: as in `SCVI`, ``adata`` and ``indices`` first.
            return_dist: whether to return ``m`` and ``σ²`` of ``G(exp₀(m), diag σ²)`` instead.
            kwargs: as in `SCVI`; with ``give_mean=False`` a draw of the posterior is returned.
        """
        found: Any = super().get_latent_representation(*args, return_dist=return_dist, **kwargs)
        return found if return_dist else self.to_disc(found)

    def to_disc(self, h: Any) -> NDArray[np.float64]:
        """Tangent vectors, such as ``m``, as points of the Poincaré ball, ``(..., n)``."""
        return to_disc(np.asarray(h, np.float64) * self.root_c)

    @property
    def root_c(self) -> float:
        """The unit of length of the prior in that of the disc, ``√c``."""
        module: Any = self.module
        return module.c**0.5

    @torch.inference_mode()
    def decode(
        self,
        places: Any,
        genes: Sequence[str] | None = None,
        *,
        n_cells: int = 16,
        random_state: int = 0,
    ) -> NDArray[np.float32]:
        """Normalised expression at points of the disc, ``(..., n) → (..., genes)``.

        Batches and other covariates are averaged out: each point is decoded with those of
        ``n_cells`` cells, drawn once for all points.

        Args:
            places: points of the Poincaré ball.
            genes: names of genes; by default all.
            n_cells: how many cells lend their covariates.
            random_state: a seed for the draw of these cells.
        """
        z = charts.from_poincare(torch.as_tensor(places, dtype=torch.float64))
        h, columns = (lorentz.log0(z) / self.root_c).float(), self._columns(genes)
        lenders = self._lenders(n_cells, random_state)
        found = [
            self._decoded(some, lenders)[..., columns].mean(1)
            for some in h.reshape(-1, h.shape[-1]).split(max(1, _DECODED // n_cells))
        ]
        return torch.cat(found).reshape(*h.shape[:-1], len(columns)).numpy()

    def _columns(self, genes: Sequence[str] | None) -> list[int]:
        names = {name: i for i, name in enumerate(self.get_var_names())}
        unknown = [gene for gene in genes or () if gene not in names]
        if unknown:
            raise UserError(f"Expected genes of the model; got {_listed(unknown)}.")
        return [names[gene] for gene in (names if genes is None else genes)]

    def _lenders(self, n_cells: int, seed: int) -> dict[str, Tensor]:
        """The covariates of some of the cells that the model was set up with."""
        adata: Any = self.adata
        draw = np.random.default_rng(seed).choice(adata.n_obs, min(n_cells, adata.n_obs), False)
        chosen: Any = np.sort(draw)
        (tensors,) = self._make_data_loader(adata=adata, indices=chosen, batch_size=len(draw))
        return tensors

    def _decoded(self, h: Tensor, lenders: dict[str, Tensor]) -> Tensor:
        """Every point with the covariates of every lender, ``(points, lenders, genes)``."""
        module: Any = self.module
        module.eval()
        device = self.device
        tensors = {key: x.to(device).repeat(len(h), 1) for key, x in lenders.items()}
        count = len(tensors["X"]) // len(h)
        z = h.to(device).repeat_interleave(count, 0)
        inputs = module._get_generative_input(tensors, {"z": z, "library": z.new_zeros(len(z), 1)})
        return module.generative(**inputs)["px"].scale.cpu().unflatten(0, (len(h), count))

    def get_aggregated_posterior(self, *args: Any, **kwargs: Any) -> Any:
        """Not there: that of `SCVI`, and its differential abundance, are of normal laws."""
        raise UserError(
            "Expected a model with a normal latent; that of HyperbolicSCVI is a wrapped normal. "
            "Mix hw.WrappedNormal(tangent=m, scale=σ), with m and σ² from "
            "get_latent_representation(return_dist=True)."
        )

    @classmethod
    def load_query_data(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, adata: AnnData, reference_model: "str | HyperbolicSCVI", **kwargs: Any
    ) -> "HyperbolicSCVI":
        """A model for new cells, from new batches too, whose old weights stay fixed (scArches).

        Genes are matched by name: those that the reference does not know are left out. After
        ``train`` with ``plan_kwargs={"weight_decay": 0.0}`` the old cells are where they were.

        Args:
            adata: the new cells, with the columns of ``obs`` that the reference was set up with.
            reference_model: a trained model, or the folder in which it was saved.
            kwargs: as in `SCVI`.
        """
        names: Any = cls.prepare_query_anndata(
            adata, reference_model, return_reference_var_names=True
        )
        return super().load_query_data(aligned(adata, names), reference_model, **kwargs)

    def _validate_anndata(self, adata: Any = None, copy_if_view: bool = True) -> AnnData:
        if adata is not None and adata is not self.adata:
            require_genes(adata, list(self.get_var_names()))
        return super()._validate_anndata(adata, copy_if_view)


def to_disc(h: NDArray[Any]) -> NDArray[np.float64]:
    """Tangent vectors at the origin as points of the Poincaré ball, ``(..., n)`` in float64.

    >>> to_disc(np.array([2.0, 0.0])).round(4)
    array([0.7616, 0.    ])
    """
    return charts.poincare_of_tangent(torch.as_tensor(h).double()).numpy()


# --- what cannot be modelled ---------------------------------------------------------------------


def require_columns(adata: AnnData, keys: Sequence[str]) -> None:
    """Refuses a column that ``obs`` does not have."""
    missing = [key for key in keys if key not in adata.obs]
    if missing:
        raise UserError(
            f"Expected a column {missing[0]!r} in `adata.obs`; got {_listed(adata.obs.columns)}."
        )


def require_enough(adata: AnnData, batch_key: str | None) -> None:
    """Refuses one cell, and a column of batches that holds only one."""
    if adata.n_obs < 2:
        raise UserError(f"Expected at least two cells; got {adata.n_obs}.")
    if batch_key is None:
        return
    batches = set(adata.obs[batch_key])
    if len(batches) < 2:
        raise UserError(
            f"Expected at least two batches in `adata.obs[{batch_key!r}]`; got "
            f"{_listed(batches)}. Leave out `batch_key` where there is one."
        )


def require_counts(adata: AnnData, layer: str | None) -> None:
    """Refuses a layer that is not there, or that holds anything but counts."""
    if layer is not None and layer not in adata.layers:
        raise UserError(f"Expected a layer {layer!r} in `adata`; got {_listed(adata.layers)}.")
    where = "`adata.X`" if layer is None else f"`adata.layers[{layer!r}]`"
    for x in _numbers(adata.X if layer is None else adata.layers[layer], where):
        wrong = x[~((x >= 0) & (x == np.floor(x)) & np.isfinite(x))]
        if wrong.size:
            raise UserError(
                f"Expected counts in {where}, which are integers ≥ 0; got {wrong[0]:g}. "
                "Give the layer that holds the raw counts."
            )


def _numbers(x: Any, where: str) -> Iterator[NDArray[Any]]:
    """The numbers of a table in memory or on disk, a block of cells at a time; zeros may lack."""
    if x is None:
        raise UserError(f"Expected counts in {where}; got None. Name a layer.")
    for start in range(0, x.shape[0], _AT_ONCE):
        block = x[start : start + _AT_ONCE]
        yield block.data if issparse(block) else np.asarray(block)


def require_genes(adata: AnnData, names: Sequence[str]) -> None:
    """Refuses cells whose genes are not those of the model, in the same order."""
    if list(adata.var_names) != list(names):
        aligned(adata, names)
        raise UserError(
            f"Expected the {len(names)} genes of the model in their order; got {adata.n_vars} in "
            "another. Give `adata[:, model.get_var_names()].copy()`."
        )


def aligned(adata: AnnData, names: Sequence[str]) -> AnnData:
    """The cells with the genes named, in this order; ``adata`` itself if it has them so."""
    if list(adata.var_names) == list(names):
        return adata
    missing = [name for name in names if name not in adata.var_names]
    if missing:
        raise UserError(
            f"Expected the {len(names)} genes of the model; {len(missing)} are missing: "
            f"{_listed(missing)}. HyperbolicSCVI.prepare_query_anndata adds them as zeros."
        )
    return adata[:, list(names)].copy()


def _listed(names: Any) -> str:
    found = [str(name) for name in names]
    shown = ", ".join(found[:_NAMED])
    return (shown + " …" if len(found) > _NAMED else shown) or "none"
