"""What a hyperbolic latent costs over its Euclidean twin.

Forward and backward of: sample z ~ q, log q(z), log p(z) under the standard prior, for 10,000
points on one CPU thread. Prints the time over the same work with `torch.distributions.Normal`,
eager and compiled; the textbook formulas of the paper, composed the usual way, stand beside.

    python benchmarks/sample_and_score.py
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Normal

import hyperwrap as hw
from hyperwrap.experiments.textbook import TextbookWrappedNormal

POINTS = 10_000
Step = Callable[[Tensor, Tensor], Tensor]


def euclidean(n: int) -> Step:
    prior = Normal(torch.zeros(n), torch.ones(n), validate_args=False)

    def step(h: Tensor, scale: Tensor) -> Tensor:
        q = Normal(h, scale, validate_args=False)
        z = q.rsample()
        return (q.log_prob(z).sum(-1) - prior.log_prob(z).sum(-1)).sum()

    return step


def hyperbolic(n: int) -> Step:
    prior = hw.WrappedNormal(hw.lorentz.origin(n), torch.ones(n), validate_args=False)

    def step(loc: Tensor, scale: Tensor) -> Tensor:
        z, log_q = hw.WrappedNormal(loc, scale, validate_args=False).rsample_and_log_prob()
        return (log_q - prior.log_prob(z)).sum()

    return step


def hyperbolic_from_tangent(n: int) -> Step:
    inner = hyperbolic(n)
    return lambda h, scale: inner(hw.lorentz.exp0(h), scale)


def textbook(n: int) -> Step:
    prior = TextbookWrappedNormal(hw.lorentz.origin(n), torch.ones(n))

    def step(loc: Tensor, scale: Tensor) -> Tensor:
        q = TextbookWrappedNormal(loc, scale)
        z = q.rsample()
        return (q.log_prob(z) - prior.log_prob(z)).sum()

    return step


def seconds(
    steps: dict[str, Step], inputs: dict[str, tuple[Tensor, ...]], repeats: int
) -> dict[str, float]:
    """The median over interleaved repeats, so that every row sees the same machine."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for i in range(repeats + 5):
        for name, step in steps.items():
            start = time.perf_counter()
            torch.autograd.grad(step(*inputs[name]), inputs[name])
            if i >= 5:
                times[name].append(time.perf_counter() - start)
    return {name: sorted(t)[len(t) // 2] for name, t in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, one thread, {POINTS} points, median of {options.repeats}")
    print(f"{'':34}{'n':>5}{'ms':>9}{'over Normal':>13}")
    for n in (2, 20, 100):
        h, scale = torch.randn(POINTS, n) / n**0.5, torch.rand(POINTS, n) + 0.5
        tangent = (h.requires_grad_(), scale.requires_grad_())
        points = (hw.lorentz.exp0(h).detach().requires_grad_(), scale)
        eager = {
            "Normal": euclidean(n),
            "WrappedNormal": hyperbolic(n),
            "WrappedNormal(exp0(h))": hyperbolic_from_tangent(n),
            "textbook formulas": textbook(n),
        }
        inputs = dict.fromkeys(eager, points)
        inputs["Normal"] = inputs["WrappedNormal(exp0(h))"] = tangent
        report(n, seconds(eager, inputs, options.repeats), "Normal")
        if not options.no_compile:
            compiled = {
                f"{name}, compiled": torch.compile(step, fullgraph=True)
                for name, step in eager.items()
                if "textbook" not in name
            }
            inputs = {f"{name}, compiled": x for name, x in inputs.items()}
            report(n, seconds(compiled, inputs, options.repeats), "Normal, compiled")


def report(n: int, times: dict[str, float], baseline: str) -> None:
    for name, t in times.items():
        print(f"{name:34}{n:5}{1e3 * t:9.2f}{t / times[baseline]:13.2f}")


if __name__ == "__main__":
    main()
