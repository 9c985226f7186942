r"""§5.3 and Appendices C.3 and D: VAEs of the frames of Breakout, vanilla and hyperbolic.

The frames are those of our own player's games (`hyperwrap.breakout.frames`): 100,000, the first
80 % to train on, the last 10 % to test on, gray, 80 × 80, scaled to ``[−1, 1]``. The networks are
those of the paper (`vae.dcgan`), ``n = 20``, Gaussian likelihood, one sample; Adam 1e-4, batches
of 100, 300 epochs, ``β`` rising from .1 to 4 over the first 30. Two things differ: in
both geometries the ReLU before the decoder's last layer has a slope of .2 below 0, as its two
channels can die; and a decoder that is given points of the hyperboloid sees no further than radius
10, as it can overflow. On a GPU the networks are in bfloat16, but for the decoder's last layers,
which give means and scales of the pixels, and for the last 400 steps or less. The last model is
evaluated, with statistics of batch normalisation of its own.

- *correlation*: Pearson's, of a test frame's distance from the origin, ``|h|`` with the posterior
  centred at ``exp₀(h)`` (hyperbolic) or ``h`` (vanilla), with the points of the game so far. Its
  interval comes from drawing whole games anew (`correlation`).
- *score hidden*: the same with one score on all test frames. Its digits are in the picture, so a
  model can read the points.
- *from the first frame*: the correlation of the distance from the first of all frames, a full wall,
  in place of that from the origin.
- *further games*: the correlation in games that are none of those trained, selected or tested on,
  if frames of such are given (`further`); the test frames are of few games.
- *blocks*: the remaining-block ratio (`screen`) of what the model makes at a distance from the
  origin, mean over directions (`sweep`).
- *ELBO*, *LL*: nats a test frame in the scale of ``[−1, 1]``, both from the same samples.

Each model has a folder in ``models`` (`models`). A run trains those that are missing; tables and
figures are of all that are there, whichever run made them.
"""

from nagano2019.breakout.models import FULL, QUICK, Model, Outcome, Scale
from nagano2019.breakout.run import Result, Watch, reproduce, steps, summary, wanted_models

__all__ = [
    "FULL",
    "QUICK",
    "Model",
    "Outcome",
    "Result",
    "Scale",
    "Watch",
    "reproduce",
    "steps",
    "summary",
    "wanted_models",
]
