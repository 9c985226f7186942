"""How far frames of further games lie from the origin, as the test frames are of few games."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch.backends import cudnn

from hyperwrap.errors import UserError
from nagano2019.atari.frames import Frames
from nagano2019.breakout import screen
from nagano2019.breakout.correlation import Array
from nagano2019.breakout.models import Data, Outcome, lengths, named, tangents

__all__ = ["EVERY", "Further", "require_other_games"]

EVERY = 4
"""One frame of so many; those between are like it, and what counts is the number of games."""


class Further(NamedTuple):
    """Frames of further games, and the distance of each from the origin by a model's folder."""

    frames: Frames
    radii: Mapping[Path, Array]
    scoreless: Mapping[Path, Array]
    """With the score of all frames made that of the first one of all that were trained on."""

    @classmethod
    def of(
        cls,
        frames: Frames,
        outcomes: Collection[Outcome],
        data: Data,
        watch: Callable[[int, int], None],
    ) -> "Further":
        """What finished models make of games that are none of those in ``data``.

        ``watch`` is called with how many models are done, and of how many.
        """
        some = frames.every(EVERY)
        screens = torch.from_numpy(some.screens).unsqueeze(1).to(data.device)
        scoreless = screen.with_score_of(data.train[0, 0], screens)
        found: tuple[dict[Path, Array], dict[Path, Array]] = {}, {}
        with cudnn.flags(enabled=True, allow_tf32=False), torch.no_grad():
            for done, outcome in enumerate(outcomes, 1):
                vae = outcome.vae().to(data.device)
                for there, seen in zip(found, (screens, scoreless), strict=True):
                    there[outcome.folder] = lengths(tangents(vae, seen))
                watch(done, len(outcomes))
        return cls(some, *found)


def require_other_games(frames: Frames, data: Data) -> None:
    """Refuses the very frames that the models are trained and tested on."""
    if named(frames) == data.name:
        raise UserError(
            "Expected frames of further games; got those that the models are trained and tested "
            "on. Collect others with another --seed."
        )
