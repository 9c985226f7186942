r"""Figure 3 and Appendix B: heat maps of the log-density of ``G(μ, Σ)`` on ``H²``.

Each law is drawn in two charts. Left, the tangent plane at ``μ``: the colour at ``v`` is that of the
point ``z = proj_μ(v)``. Right, the Poincaré disc: the colour at ``y`` is that of the point it stands for.
In both it is ``log p(z)`` with respect to the Riemannian volume, what `log_prob` returns, so a point
has one colour. (The density with respect to ``dy`` would add ``2·log(2/(1−|y|²))``.) Axes of the
tangent plane are those at the origin, carried to ``μ``; on the disc they keep their directions.

The centre is ``μ = exp_{μ₀}(h)``. The paper leaves the values of ``h`` and ``Σ`` open; these are ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi

import torch
from torch import Tensor

from hyperwrap import charts, lorentz
from hyperwrap.distributions import WrappedNormal
from hyperwrap.plot import DensityPair, density_pairs
