"""Quantiles of χ² and F, by SciPy, which is imported on first use."""

from torch import Tensor, as_tensor

__all__ = ["chi2_quantile", "f_quantile"]


def f_quantile(top: int, below: Tensor, level: float) -> Tensor:
    """That of F with ``top`` and ``below`` degrees of freedom, ``(...) → (...)``."""
    from scipy.special import fdtri

    return as_tensor(fdtri(top, below.cpu().numpy(), level)).to(below)


def chi2_quantile(n: int, level: float) -> float:
    """That of χ² with ``n`` degrees of freedom."""
    from scipy.special import chdtri

    return float(chdtri(n, 1 - level))
