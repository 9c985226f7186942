"""Figures in one call: Matplotlib axes in and out.

Every function takes ``ax=None`` (a new figure) and returns the axes it drew on, so that pictures
can be laid over each other and changed by Matplotlib's own means. Points are those of the
hyperboloid ``H²``, time coordinate first; they are shown in a chart: ``poincare``, ``klein``,
``halfspace`` or ``native``.

>>> law = hw.WrappedNormal(tangent=torch.tensor([1.0, 0.5]), scale=0.5)
>>> ax = hw.plot.density(law)
>>> ax = hw.plot.points(law.sample((100,)), ax)
>>> ax.get_aspect()
1.0
"""

from hyperwrap.errors import needs_extra

with needs_extra("plot"):
    import matplotlib  # noqa: F401

from hyperwrap.plot.diagnosis import diagnosis
from hyperwrap.plot.geometry import CHARTS, Chart, axes, geodesic, way
from hyperwrap.plot.graphs import embedding, labels, tree
from hyperwrap.plot.laws import density
from hyperwrap.plot.models import interpolation, training
from hyperwrap.plot.scatter import points
from hyperwrap.plot.style import FAMILIES, KINDS, LEVELS, outlined, style

__all__ = [
    "CHARTS",
    "FAMILIES",
    "KINDS",
    "LEVELS",
    "Chart",
    "axes",
    "density",
    "diagnosis",
    "embedding",
    "geodesic",
    "interpolation",
    "labels",
    "outlined",
    "points",
    "style",
    "training",
    "tree",
    "way",
]
