"""What a hyperbolic latent costs over its Euclidean twin.

Forward and backward of: sample z ~ q, log q(z), log p(z) under the standard prior, for 10,000
points. Prints the time over the same work with `torch.distributions.Normal`, eager and compiled;
the textbook formulas of the paper, composed the usual way, stand beside. Times are the shortest of
interleaved repeats.

    python benchmarks/sample_and_score.py                  # one CPU thread
    python benchmarks/sample_and_score.py --device cuda
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Normal

import hyperwrap as hw
from nagano2019.textbook import TextbookWrappedNormal

POINTS = 10_000
Step = Callable[[Tensor, Tensor], Tensor]


def euclidean(n: int, device: str) -> Step:
    prior = Normal(torch.zeros(n, device=device), torch.ones(n, device=device), validate_args=False)

    def step(h: Tensor, scale: Tensor) -> Tensor:
        q = Normal(h, scale, validate_args=False)
        z = q.rsample()
        return (q.log_prob(z).sum(-1) - prior.log_prob(z).sum(-1)).sum()

    return step


def from_tangent(n: int, device: str) -> Step:
    origin = torch.zeros(n, device=device)
    prior = hw.WrappedNormal(tangent=origin, scale=1.0, validate_args=False)

    def step(h: Tensor, scale: Tensor) -> Tensor:
        q = hw.WrappedNormal(tangent=h, scale=scale, validate_args=False)
        _, log_q, log_p = q.rsample_against(prior)
        return (log_q - log_p).sum()

    return step


def from_loc(n: int, device: str) -> Step:
    prior = hw.WrappedNormal(hw.lorentz.origin(n, device=device), 1.0, validate_args=False)

    def step(loc: Tensor, scale: Tensor) -> Tensor:
        z, log_q = hw.WrappedNormal(loc, scale, validate_args=False).rsample_and_log_prob()
        return (log_q - prior.log_prob(z)).sum()

    return step


def textbook(n: int, device: str) -> Step:
    prior = TextbookWrappedNormal(hw.lorentz.origin(n, device=device), torch.ones(n, device=device))

    def step(loc: Tensor, scale: Tensor) -> Tensor:
        q = TextbookWrappedNormal(loc, scale)
        z = q.rsample()
        return (q.log_prob(z) - prior.log_prob(z)).sum()

    return step


MAKERS = {
    "Normal": euclidean,
    "WrappedNormal(tangent=h)": from_tangent,
    "WrappedNormal(loc)": from_loc,
    "textbook formulas": textbook,
}


def seconds(
    steps: dict[str, Step], inputs: dict[str, tuple[Tensor, Tensor]], repeats: int
) -> dict[str, float]:
    """The shortest of interleaved repeats, so that every row sees the same machine at its best."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for i in range(repeats + 5):
        for name, step in steps.items():
            start = time.perf_counter()
            torch.autograd.grad(step(*inputs[name]), inputs[name])
            if inputs[name][0].is_cuda:
                torch.cuda.synchronize()
            if i >= 5:
                times[name].append(time.perf_counter() - start)
    return {name: min(t) for name, t in times.items()}


def measure(n: int, device: str, repeats: int, compiled: bool) -> dict[str, float]:
    h = torch.randn(POINTS, n, device=device) / n**0.5
    scale = (torch.rand(POINTS, n, device=device) + 0.5).requires_grad_()
    loc = hw.lorentz.exp0(h).requires_grad_()
    names = [name for name in MAKERS if not (compiled and "textbook" in name)]
    steps = {name: MAKERS[name](n, device) for name in names}
    if compiled:
        torch.compiler.reset()
        steps = {name: torch.compile(step, fullgraph=True) for name, step in steps.items()}
    by_vector = ("Normal", "WrappedNormal(tangent=h)")
    h.requires_grad_()
    inputs = {name: (h if name in by_vector else loc, scale) for name in names}
    return seconds(steps, inputs, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(
        f"torch {torch.__version__}, {options.device}, {POINTS} points, {options.repeats} repeats"
    )
    print(
        f"{'':26}{'n':>5}{'eager ms':>10}{'over Normal':>13}{'compiled ms':>13}{'over Normal':>13}"
    )
    for n in (2, 20, 100):
        eager = measure(n, options.device, options.repeats, compiled=False)
        compiled = measure(n, options.device, options.repeats, compiled=True)
        for name, t in eager.items():
            row = f"{name:26}{n:5}{1e3 * t:10.2f}{t / eager['Normal']:13.2f}"
            if name in compiled:
                c = compiled[name]
                row += f"{1e3 * c:13.2f}{c / compiled['Normal']:13.2f}"
            print(row)


if __name__ == "__main__":
    main()
