"""A registry of laws, which every property in the suite runs over: a new case costs one line."""

import inspect
import math
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import update_wrapper
from itertools import product
from typing import Any

import torch
from scipy.stats import multivariate_t
from torch import Tensor
from torch.distributions import (
    Cauchy,
    Distribution,
    Independent,
    Laplace,
    MultivariateNormal,
    StudentT,
)

import hyperwrap as hw

F64 = torch.float64
Test = Callable[..., None]


def for_each(**grid: Iterable[Any]) -> Callable[[Test], Test]:
    """Runs a test for every combination of these arguments, with the same random seed each time.

    One test, where `pytest.mark.parametrize` would make hundreds; a failure names its combination.
    """
    combinations = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]

    def decorate(test: Test) -> Test:
        def run(*args: Any, **fixtures: Any) -> None:
            for given in combinations:
                torch.manual_seed(0)
                try:
                    test(*args, **fixtures, **given)
                except Exception as error:
                    error.add_note(f"with {', '.join(f'{k}={v}' for k, v in given.items())}")
                    raise

        signature = inspect.signature(test)
        left = [p for name, p in signature.parameters.items() if name not in grid]
        update_wrapper(run, test).__signature__ = signature.replace(parameters=left)  # pyright: ignore
        return run

    return decorate


# --- Σ in the forms that WrappedNormal takes ----------------------------------------------------

SIGMA_FORMS: dict[str, Callable[[Tensor], dict[str, Any]]] = {
    "scale": lambda low: {"scale": low.diagonal(dim1=-2, dim2=-1)},
    "scalar": lambda low: {"scale": 0.6},
    "scale_tril": lambda low: {"scale_tril": low},
    "covariance_matrix": lambda low: {"covariance_matrix": low @ low.mT},
    "precision_matrix": lambda low: {"precision_matrix": torch.cholesky_inverse(low)},
}

# --- other base laws, at a scale per coordinate -------------------------------------------------

BASE_LAWS: dict[str, Callable[[Tensor], Distribution]] = {
    "laplace": lambda low: Independent(Laplace(0.0 * _diag(low), _diag(low)), 1),
    "cauchy": lambda low: Independent(Cauchy(0.0 * _diag(low), 0.2 * _diag(low)), 1),
    "student": lambda low: Independent(StudentT(4.0, 0.0 * _diag(low), _diag(low)), 1),
    "gaussian": lambda low: MultivariateNormal(0.0 * _diag(low), scale_tril=low),
}


def _diag(low: Tensor) -> Tensor:
    return low.diagonal(dim1=-2, dim2=-1)


# --- elliptical laws by name, at a factor of Σ ----------------------------------------------------

ELLIPTICAL: dict[str, Callable[..., Distribution]] = {
    "wrapped-laplace": lambda low, **at: hw.WrappedLaplace(scale_tril=low, **at),
    "wrapped-student": lambda low, **at: hw.WrappedStudentT(3.5, scale_tril=low, **at),
    "wrapped-cauchy": lambda low, **at: hw.WrappedCauchy(scale=0.3 * _diag(low), **at),
}


class Elliptical(Distribution):
    """Their law of ``v``, by SciPy's t and by a formula of the Laplace."""

    def __init__(self, form: str, low: Tensor) -> None:
        self.form = form
        self.low = low if form != "wrapped-cauchy" else torch.diag_embed(0.3 * _diag(low))
        super().__init__(low.shape[:-2], low.shape[-1:], validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        low = self.low.expand(*value.shape, value.shape[-1]).reshape(-1, *self.low.shape[-2:])
        rows = zip(value.reshape(-1, value.shape[-1]), low, strict=True)
        return torch.tensor([self._one(v, m) for v, m in rows], dtype=F64).view(value.shape[:-1])

    def _one(self, v: Tensor, low: Tensor) -> float:
        n = len(v)
        if self.form != "wrapped-laplace":
            df: Any = 3.5 if self.form == "wrapped-student" else 1.0
            sigma: Any = (low @ low.mT).numpy()
            return multivariate_t.logpdf(v.numpy(), shape=sigma, df=df)
        length = torch.linalg.solve(low, v).norm().item()
        area = 2 * math.pi ** (n / 2) / math.gamma(n / 2)
        return -length - math.log(area * math.gamma(n)) - low.logdet().item()


# --- laws of the distance from the centre, at a size --------------------------------------------

ISOTROPIC: dict[str, Callable[..., Distribution]] = {
    "riemannian": lambda low, **at: hw.RiemannianNormal(scale=low[..., 0, 0], **at),
    "ball": lambda low, **at: hw.UniformBall(radius=3.1 + low[..., 0, 0], **at),
}


class OnTangents(Distribution):
    """The law of ``v`` for an isotropic law, with the mass of its density by a trapezoidal rule."""

    def __init__(self, form: str, low: Tensor, n: int, c: float) -> None:
        self.form, self.size, self.n, self.root = form, low[..., 0, 0], n, math.sqrt(c)
        super().__init__(low.shape[:-2], torch.Size((n,)), validate_args=False)

    def shape(self, r: Tensor) -> Tensor:
        """The log-density at a distance, but for a constant."""
        if self.form == "riemannian":
            return -(r / self.size).square() / 2
        return torch.where(r <= 3.1 + self.size, 0.0, -torch.inf).to(r)

    def log_prob(self, value: Tensor) -> Tensor:
        reach = 3.1 + self.size if self.form == "ball" else 16 * self.size * (1 + self.size)
        r = torch.linspace(0, 1, 200_001, dtype=F64).view(-1, *[1] * reach.dim()) * reach
        area = 2 * math.pi ** (self.n / 2) / math.gamma(self.n / 2)
        sphere = (torch.sinh(self.root * r) / self.root) ** (self.n - 1) * area
        mass = torch.trapezoid(sphere * self.shape(r).exp(), r, dim=0)
        length = value.norm(dim=-1)
        x = self.root * length
        log_det = (self.n - 1) * torch.log(torch.sinh(x) / x)
        return self.shape(length) - mass.log() + log_det


@dataclass(frozen=True)
class Case:
    """A law: what it is or what form Σ is in, where the centre is, and the curvature ``−c``.

    ``base()`` is the same law on ``R^n`` by torch alone, the independent witness.
    """

    form: str
    n: int
    c: float = 1.0
    radius: float = 1.0
    batch: tuple[int, ...] = ()

    def __str__(self) -> str:
        batch = "x".join(map(str, self.batch)) or "single"
        return f"{self.form}-n{self.n}-c{self.c:g}-R{self.radius:g}-{batch}"

    @property
    def is_normal(self) -> bool:
        return self.form in SIGMA_FORMS

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(zlib.crc32(str(self).encode()))

    def tril(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """A well-conditioned Cholesky factor, another one for each member of the batch."""
        g, shape = self.generator(), (*self.batch, self.n, self.n)
        low = 0.2 * torch.randn(shape, generator=g, dtype=dtype).tril(-1)
        return low + torch.diag_embed(0.4 + 0.4 * torch.rand(shape[:-1], generator=g, dtype=dtype))

    def loc(self, dtype: torch.dtype = torch.float64) -> Tensor:
        shape = (*self.batch, self.n)
        v = torch.randn(shape, generator=self.generator(), dtype=dtype)
        return hw.lorentz.exp0(self.radius * v / v.norm(dim=-1, keepdim=True), c=self.c)

    def law(self, dtype: torch.dtype = torch.float64, *, validate_args: bool | None = None) -> Any:
        """The law of this case."""
        return self.law_at(dtype, loc=self.loc(dtype), validate_args=validate_args)

    def law_at(self, dtype: torch.dtype = torch.float64, **centre: Any) -> Any:
        """The same law around a centre that is given in either form."""
        low = self.tril(dtype)
        if self.form in ISOTROPIC:
            return ISOTROPIC[self.form](low, c=self.c, **centre)
        if self.form in ELLIPTICAL:
            return ELLIPTICAL[self.form](low, c=self.c, **centre)
        if self.form in BASE_LAWS:
            return hw.Wrapped(BASE_LAWS[self.form](low), c=self.c, **centre)
        return hw.WrappedNormal(**SIGMA_FORMS[self.form](low), c=self.c, **centre)

    def base(self, dtype: torch.dtype = torch.float64) -> Distribution:
        low = self.tril(dtype)
        if self.form in ISOTROPIC:
            return OnTangents(self.form, low, self.n, self.c)
        if self.form in ELLIPTICAL:
            return Elliptical(self.form, low)
        if not self.is_normal:
            return BASE_LAWS[self.form](low)
        if self.form == "scalar":
            low = 0.6 * torch.eye(self.n, dtype=dtype).expand_as(low)
        elif self.form == "scale":
            low = torch.diag_embed(_diag(low))
        return MultivariateNormal(torch.zeros_like(_diag(low)), scale_tril=low)

    def tangents(self, count: int, dtype: torch.dtype = torch.float64) -> Tensor:
        """Some tangent vectors at the origin, ``(count, *batch, n)``, of lengths .1 to 3."""
        g = self.generator()
        v = torch.randn((count, *self.batch, self.n), generator=g, dtype=dtype)
        lengths = 0.1 + 2.9 * torch.rand((count, *self.batch, 1), generator=g, dtype=dtype)
        return lengths * v / v.norm(dim=-1, keepdim=True)


CASES = [
    Case("scale", n=1),
    Case("scale", n=2, radius=0.0),
    Case("scale", n=2, c=0.25, radius=3.0),
    Case("scale", n=3, c=4.0, batch=(4,)),
    Case("scale", n=5, batch=(2, 3)),
    Case("scalar", n=1, c=4.0, radius=0.0),
    Case("scalar", n=2, radius=0.0),
    Case("scalar", n=3, c=0.25, radius=0.0),
    Case("scalar", n=5, c=4.0, batch=(3,)),
    Case("scale_tril", n=1, c=0.25),
    Case("scale_tril", n=2, c=4.0),
    Case("scale_tril", n=3, radius=0.0),
    Case("scale_tril", n=5, batch=(2, 1)),
    Case("covariance_matrix", n=2, c=0.25, batch=(3,)),
    Case("covariance_matrix", n=3, c=4.0),
    Case("covariance_matrix", n=5, radius=3.0),
    Case("precision_matrix", n=2, c=4.0, radius=0.0, batch=(2,)),
    Case("precision_matrix", n=3, c=0.25),
    Case("precision_matrix", n=5),
    Case("laplace", n=1, c=0.25),
    Case("laplace", n=2),
    Case("laplace", n=3, c=4.0, batch=(3,)),
    Case("cauchy", n=2, c=0.25),
    Case("cauchy", n=3, radius=0.0),
    Case("student", n=2, c=4.0),
    Case("student", n=5, batch=(2, 2)),
    Case("gaussian", n=2, c=0.25, radius=0.0),
    Case("gaussian", n=5, c=4.0, batch=(3,)),
    Case("riemannian", n=1, c=0.25),
    Case("riemannian", n=2, radius=0.0),
    Case("riemannian", n=3, c=4.0, batch=(3,)),
    Case("riemannian", n=5, batch=(2, 2)),
    Case("wrapped-laplace", n=1, c=0.25),
    Case("wrapped-laplace", n=3, batch=(2,)),
    Case("wrapped-student", n=2, c=4.0, batch=(2, 2)),
    Case("wrapped-student", n=5),
    Case("wrapped-cauchy", n=2, radius=0.0),
    Case("ball", n=1),
    Case("ball", n=2, c=0.25, batch=(3,)),
    Case("ball", n=3, radius=0.0),
]
NORMAL_CASES = [case for case in CASES if case.is_normal]
