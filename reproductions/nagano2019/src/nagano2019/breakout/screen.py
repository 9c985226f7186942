"""What a screen of Breakout shows: how much of the wall is left, and what the points say about it.

On the console's screen of 210 × 160 pixels the wall takes the lines 57 to 92 and the columns 8 to
151: 6 rows of 18 blocks, 6 × 8 pixels each. Scaled to 84 × 84 and with two pixels cropped on each
side that is 20.8 to 35.2 downward and 2.2 to 77.8 across. The region ``R`` is all pixels that lie
wholly inside: rows 21 to 34, columns 3 to 76, 1036 of them.

On a start screen the grey of ``R`` is 121.9 on average and 85 in its darkest blocks, those of the
lowest row; the background has 0. The threshold is half that mean, 61. Where scaling blurred the
edges of blocks, about as much is lost as is gained. All of the full wall is above it. So the
*remaining-block ratio* of a screen, the share of ``R`` above the threshold divided by that of the
full wall, is that share itself. The ball, where it is in ``R``, adds less than .01.

A screen that is black or grey all over has a ratio as well, but is not from the game. What tells
them apart is the field around the wall. Its sides, the two outermost columns left and right, always
have grey 142 in the rows 36 to 69, and between them, columns 3 to 76, all but the ball is black,
above the wall in the rows 11 to 19 and below it in the rows 36 to 69. The *ratio of the field* is
the share of the sides above the threshold, times the share of what is black above the wall that is
not, times that below it: at least .99 on a screen of the game.

The score, and how many balls are left, stand in digits in the rows 0 to 3, above the field.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "BLOCKS",
    "REGION",
    "SCORE",
    "THRESHOLD",
    "WALL",
    "block_ratio",
    "blocks_left",
    "field_ratio",
    "grey",
    "scaled",
    "with_score_of",
]

REGION = (slice(21, 35), slice(3, 77))
SCORE = slice(0, 4)
THRESHOLD = 61
BLOCKS = 108
WALL = 36 * (1 + 4 + 7)
"""Points of a whole wall: the two lowest rows give 1 a block, those in the middle 4, the top 7."""


def scaled(screens: Tensor) -> Tensor:
    """Grey values 0 to 255 to what the models see, ``[−1, 1]``."""
    return screens.float() / 127.5 - 1


def grey(x: Tensor) -> Tensor:
    """Back from ``[−1, 1]``; what a model makes may lie outside of 0 to 255."""
    return (x + 1) * 127.5


def block_ratio(screens: Tensor) -> Tensor:
    """The remaining-block ratio of grey screens, ``(..., 80, 80) → (...)``.

    >>> half = torch.zeros(80, 80)
    >>> half[:, :40] = 100
    >>> block_ratio(half)
    tensor(0.5000)
    """
    return (screens[..., *REGION] > THRESHOLD).float().mean((-2, -1))


def field_ratio(screens: Tensor) -> Tensor:
    """How much of the field is as in the game, of grey screens ``(..., 80, 80) → (...)``.

    >>> field_ratio(torch.stack([torch.zeros(80, 80), torch.full((80, 80), 142)]))
    tensor([0., 0.])
    """
    lit = (screens > THRESHOLD).float()
    parts = lit[..., 36:70, [0, 1, 78, 79]], 1 - lit[..., 11:20, 3:77], 1 - lit[..., 36:70, 3:77]
    sides, above, below = (part.mean((-2, -1)) for part in parts)
    return sides * above * below


def with_score_of(other: Tensor, screens: Tensor) -> Tensor:
    """Screens, ``(..., 80, 80)``, with the digits of another, ``(80, 80)``."""
    screens = screens.clone()
    screens[..., SCORE, :] = other[SCORE]
    return screens


def blocks_left(
    points: NDArray[np.integer], game: NDArray[np.integer], step: NDArray[np.integer]
) -> NDArray[np.float64]:
    """How many blocks stand in each frame, ``(T,)``, counted by what each hit gave.

    Points that come between two frames are those of the fewest blocks that give that many. NaN
    where that cannot be told: in a game whose first frame is not there, and between two walls, when
    there is either none or a new one.

    >>> blocks_left(np.array([0, 1, 1, 12]), np.zeros(4, int), np.arange(4))
    array([108., 107., 107., 105.])
    """
    gained = np.diff(points, prepend=0)
    first = np.concatenate([[True], game[1:] != game[:-1]])
    hit = np.where(first, 0, _FEWEST[np.clip(gained, 0, len(_FEWEST) - 1)])
    so_far = np.cumsum(hit)
    start = np.maximum.accumulate(np.where(first, np.arange(len(points)), 0))
    gone = so_far - so_far[start]
    known = (step[start] == 0) & (points % WALL != 0) | (points == 0)
    return np.where(known, BLOCKS - gone % BLOCKS, np.nan)


def _fewest(most: int) -> NDArray[np.int64]:
    """The fewest blocks of 1, 4 and 7 points that give 0, 1, … ``most`` points."""
    found = [0]
    for points in range(1, most + 1):
        found.append(1 + min(found[points - worth] for worth in (1, 4, 7) if worth <= points))
    return np.array(found)


_FEWEST = _fewest(WALL)
