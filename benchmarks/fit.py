"""How long a maximum likelihood fit takes, beside one evaluation of the density.

10,000 points of a wrapped normal with a full Σ at radius 3, in float64. The time is the best of
five fits; the ratio is to `log_prob` of the same points, the best of five too.

    OMP_NUM_THREADS=1 python benchmarks/fit.py
"""

import platform
import time
from collections.abc import Callable
from functools import partial
from typing import get_args

import torch
from torch import Tensor

import hyperwrap as hw
from hyperwrap.distributions.fitting import CovarianceShape


def seconds(work: Callable[[], object]) -> float:
    def once() -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    return min(once() for _ in range(5))


def law(n: int) -> hw.WrappedNormal:
    a = 0.3 * torch.randn(n, n, dtype=torch.float64) + 0.6 * torch.eye(n)
    h = torch.full((n,), 3 / n**0.5, dtype=torch.float64)
    return hw.WrappedNormal(tangent=h, covariance_matrix=a @ a.mT)


def report(true: hw.WrappedNormal, points: Tensor) -> None:
    score = seconds(lambda: true.log_prob(points))
    for shape in get_args(CovarianceShape):
        fit = seconds(partial(hw.WrappedNormal.fit, points, covariance=shape))
        print(f"{true.n:3}  {shape:>8}  {fit:7.3f}  {fit / score:5.1f}")


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, one thread, {platform.machine()}")
    print(f"{'n':>3}  {'Σ':>8}  {'fit, s':>7}  ratio")
    for n in (2, 5, 20):
        true = law(n)
        report(true, true.sample((10_000,)))


if __name__ == "__main__":
    main()
