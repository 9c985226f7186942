"""χ² and F, by SciPy, which is imported on first use."""

from torch import Tensor, as_tensor

__all__ = ["chi2_quantile", "f_quantile", "f_survival"]


def f_quantile(top: int, below: Tensor, level: float) -> Tensor:
    """The quantile of F with ``top`` and ``below`` degrees of freedom, ``(...) → (...)``."""
    from scipy.special import fdtri

    return as_tensor(fdtri(top, below.cpu().numpy(), level)).to(below)


def chi2_quantile(n: int, level: float) -> float:
    """The quantile of χ² with ``n`` degrees of freedom."""
    from scipy.special import chdtri

    return float(chdtri(n, 1 - level))


def f_survival(top: int, below: float, value: Tensor) -> Tensor:
    """The probability that F with so many degrees of freedom is larger, ``(...) → (...)``."""
    from scipy.special import fdtrc

    return as_tensor(fdtrc(top, below, value.cpu().numpy())).to(value)
