r"""§5.3 and Appendices C.3 and D: VAEs of the frames of Breakout, vanilla and hyperbolic.

The frames are those of our own player's games (`nagano2019.atari.frames`): 100,000, the first
80 % to train on, the last 10 % to test on, grey, 80 × 80, scaled to ``[−1, 1]``. The networks are
those of the paper (`hyperwrap.vae.dcgan`), ``n = 20``, Gaussian likelihood, one sample; Adam 1e-4,
batches of 100, 300 epochs, ``β`` rising from .1 to 4 over the first 30; three seeds. Two things
differ: in both geometries the ReLU before the decoder's last layer has a slope of .2 below 0, as
its two channels can die; and a decoder that is given points of the hyperboloid sees no further than
radius 10, as it can overflow. On a GPU the networks are in bfloat16, except for the decoder's last
layers, which give means and scales of the pixels, and for the last 400 steps or fewer. The last
model is evaluated, with fresh statistics of batch normalisation.

- *correlation*: Pearson's, of a test frame's radius, ``|h|`` with the posterior centred at
  ``exp₀(h)`` (hyperbolic) or ``h`` (vanilla), with the points of the game so far. Its interval
  comes from drawing whole games (`correlation`).
- *score hidden*: the same with one score on all test frames. Its digits are in the picture, so a
  model can read the points.
- *from the first frame*: the same for the distance from the first of all frames, a full wall.
- *further games*: the correlation in as many frames of other games, as the test frames are of few.
- *blocks*: the remaining-block ratio (`screen`) of what the model makes at a radius, mean over
  directions (`sweep`).
- *ELBO*, *LL*: nats per test frame in the scale of ``[−1, 1]``, both from the same samples.
"""

from nagano2019.breakout.models import FULL, MIN_SCALE, QUICK, Model, Scale
from nagano2019.breakout.run import config, reproducing

__all__ = ["FULL", "MIN_SCALE", "QUICK", "Model", "Scale", "config", "reproducing"]
