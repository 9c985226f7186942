"""Node points far out, and what is true of them."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

HERE = Path(__file__).parent / "view" / "js"


def node(*arguments: str | Path, check: bool = True) -> str:
    """What Node.js prints; the test is skipped where there is none."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("Node.js is not installed")
    ran = subprocess.run([found, *map(str, arguments)], capture_output=True, text=True)
    assert ran.returncode == 0 or not check, ran.stdout + ran.stderr
    return ran.stdout


def asked(script: str, *arguments: str | Path | dict[str, Any]) -> Any:
    """The answer of one of the scripts beside the tests of the explorer's modules."""
    texts = [json.dumps(each) if isinstance(each, dict) else each for each in arguments]
    return json.loads(node(HERE / script, *texts))


def cloud(radius: float, angle: float = 0.7, count: int = 2000) -> NDArray[np.float64]:
    """Points all over the plane, and thirty around the first one, which is at this radius.

    At radius 40 two directions in float64 are at least some 10 apart, so most of the thirty lie on
    one ray; the vectors as they are rounded are the truth.
    """
    rng = np.random.default_rng(0)
    r = rng.uniform(0, radius + 1, count)
    t = rng.uniform(0, 2 * np.pi, count)
    r[:31] = radius + np.r_[0, rng.uniform(-1.5, 1.5, 30)]
    t[:31] = angle + np.r_[0, rng.uniform(-2, 2, 30)] / max(np.sinh(radius), 1)
    return r[:, None] * np.stack([np.cos(t), np.sin(t)], 1)


def seen_from(h: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where others are in the disc around ``exp₀(h)``, carried from the origin; to 80 digits."""
    with mpmath.workdps(80):
        p = _in_disc(h)
        z = [_in_disc(other) for other in others]
        w = [(each - p) / (1 - mpmath.conj(p) * each) for each in z]
        return np.array([[float(each.real), float(each.imag)] for each in w])


def _in_disc(h: NDArray[np.float64]) -> Any:
    v = mpmath.mpc(float(h[0]), float(h[1]))
    r = abs(v)
    return v / r * mpmath.tanh(r / 2) if r else v
