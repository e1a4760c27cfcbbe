"""Frames: pictures and sentences of a widget, drawn in advance for a page that has no kernel.

``explore`` emits them, as one more MIME type beside its static picture, where the environment
variable ``FEDBOOK_FRAMES`` asks for it; ``fedbook.book.frames`` puts them into the page.
"""

from __future__ import annotations

import base64
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedbook.lab.controls import Control

MIME = "application/vnd.fedbook.frames+json"
GRID = 40  # every combination of the controls' positions is drawn if there are no more than these
POSITIONS = 9  # of a slider, where each control moves alone
FINEST = 21  # of a slider, where all combinations are drawn
PLAYED = 24  # of a player, always
ALL = "Pictures drawn in advance; in the notebook the controls move freely."
ALONE = "Pictures drawn in advance: moving one control puts the others back to their start. In the notebook all move."


def wanted() -> bool:
    """Whether frames are asked for: the environment variable ``FEDBOOK_FRAMES`` is set (and not 0)."""
    return os.environ.get("FEDBOOK_FRAMES", "").strip() not in ("", "0")


class Album:
    """Frames by the positions of the controls; what is drawn twice is kept once.

    ``controls``: kind (range, play, select, switch), label and the text of each position, as a page shows them.
    """

    def __init__(self, controls: Sequence[Mapping[str, Any]], start: Sequence[int], note: str) -> None:
        self.data: dict[str, Any] = {"controls": list(controls), "start": list(start), "presets": [], "note": note}
        self.frames: dict[str, list[int]] = {}  # "2,0,1" -> picture, sentence
        self._pictures: dict[bytes, int] = {}
        self._sentences: dict[str, int] = {}

    def add(self, at: Sequence[int], frame: tuple[bytes, tuple[int, int]], sentence: str) -> None:
        """The frame (picture, its size) with control i at its position ``at[i]``."""
        picture, size = frame
        self.data["size"] = list(size)
        self.frames[",".join(map(str, at))] = [
            self._pictures.setdefault(picture, len(self._pictures)),
            self._sentences.setdefault(sentence, len(self._sentences)),
        ]

    def bundle(self) -> dict[str, Any]:
        """The album as JSON holds it; pictures are WebP in base64, ``size`` their width and height in pixels."""
        pictures = [base64.b64encode(picture).decode("ascii") for picture in self._pictures]
        return {**self.data, "frames": self.frames, "sentences": list(self._sentences), "pictures": pictures}


class Positions:
    """Where the controls of a widget stand in its frames: all combinations if they are few, else one at a time.

    ``values``: control -> the values of its positions. A preset is one more combination.
    """

    def __init__(self, specs: Mapping[str, Control], presets: Mapping[str, Mapping[str, Any]]) -> None:
        self.specs, self.presets = specs, presets
        self.defaults = {name: spec.value for name, spec in specs.items()}
        finer = (self._values(most) for most in range(FINEST, 4, -2))
        few = next((v for v in finer if math.prod(map(len, v.values())) <= GRID), None)
        self.all, self.values = few is not None, few or self._values(POSITIONS)

    def at(self, values: Mapping[str, Any]) -> list[int]:
        """The position of each control at ``values``."""
        return [self.values[name].index(values[name]) for name in self.specs]

    def settings(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Words and values of each frame; none comes twice."""
        if self.all:
            combinations = [dict(zip(self.specs, v, strict=True)) for v in itertools.product(*self.values.values())]
        else:
            combinations = [self.defaults]
            alone = ({**self.defaults, name: value} for name in self.specs for value in self.values[name])
            together = ({**self.defaults, **preset} for preset in self.presets.values())
            for values in (*alone, *together):
                if values not in combinations:
                    combinations.append(values)
        for values in combinations:
            yield ", ".join(f"{name} = {value!r}" for name, value in values.items()), values

    def album(self) -> Album:
        """An empty album with these controls and presets."""
        controls = [
            {"kind": spec.kind, "label": spec.label, "texts": [spec.text(v) for v in self.values[name]]}
            for name, spec in self.specs.items()
        ]
        album = Album(controls, self.at(self.defaults), ALL if self.all else ALONE)
        album.data["presets"] = [
            {"name": name, "at": self.at({**self.defaults, **values})} for name, values in self.presets.items()
        ]
        return album

    def _values(self, most: int) -> dict[str, list[Any]]:
        return {
            name: spec.positions(
                PLAYED if spec.kind == "play" else most, [v[name] for v in self.presets.values() if name in v]
            )
            for name, spec in self.specs.items()
        }
