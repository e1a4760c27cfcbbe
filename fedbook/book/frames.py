"""Widgets without a kernel: the frames of a chapter, beside its notebook and in its page.

A committed notebook carries one picture a widget. Its frames, the pictures and sentences drawn in advance, lie in
``frames/NN_slug.json.gz`` beside it: cell id -> one entry for each interactive figure of that cell, in order.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from fedbook.lab.frames import MIME

MOST_BYTES = 3_000_000  # of a chapter's file: with its text and figures its page stays below 6 MB
Frames = dict[str, list[dict[str, Any]]]
ICONS = {
    "minus": "−", "fast-backward": "⏮", "step-backward": "⏪", "play fa-flip-horizontal": "◀", "pause": "⏸",
    "play": "▶", "step-forward": "⏩", "fast-forward": "⏭", "plus": "+",
}  # fmt: skip


def split(notebook: Any) -> Frames:
    """Take the frames out of an executed notebook, in place: cell id -> its widgets' frames.

    matplotlib's players stay where they are, mended by ``offline_player``.
    """
    kept: Frames = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if MIME in data:
                kept.setdefault(cell.id, []).append(data.pop(MIME))
            if "font-awesome" in data.get("text/html", ""):
                data["text/html"] = offline_player(data["text/html"])
    return kept


def offline_player(html: str) -> str:
    """matplotlib's JavaScript player with letters for the icons that it loads from the network, a name for its slider,
    and the same ids at every run."""
    html = re.sub(r"<link[^>]*font-awesome[^>]*>", "", html)
    for icon, letter in ICONS.items():
        html = html.replace(f'<i class="fa fa-{icon}"></i>', letter)
    html = html.replace('class="anim-slider"', 'class="anim-slider" aria-label="Frame"')
    for number in set(re.findall(r"_anim_img([0-9a-f]{32})", html)):
        html = html.replace(number, hashlib.sha256(html.replace(number, "").encode()).hexdigest()[:32])
    return html


def frames_path(notebook_path: str | Path) -> Path:
    """Where the frames of a notebook lie."""
    path = Path(notebook_path)
    return path.parent / "frames" / f"{path.stem}.json.gz"


def write(notebook_path: str | Path, frames: Frames) -> None:
    """Put the frames beside the notebook, the same bytes for the same frames; without frames no file is left.

    Raises: ValueError (more than a page can carry; the file is as it was).
    """
    path = frames_path(notebook_path)
    if not frames:
        path.unlink(missing_ok=True)
        return
    text = json.dumps(frames, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    packed = gzip.compress(text.encode("utf-8"), mtime=0)
    if len(packed) > MOST_BYTES:
        raise ValueError(f"frames of {path.stem}: got {len(packed)} bytes; allowed is {MOST_BYTES}: fewer widgets, or "
                         "smaller figures")  # fmt: skip
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(".part")
    part.write_bytes(packed)
    os.replace(part, path)


def load(notebook_path: str | Path) -> Frames:
    """The frames of a notebook: those that its outputs carry (a product), else those that lie beside it, else none.

    Raises: ValueError (frames of a cell that the notebook does not have, or too few for its figures).
    """
    import nbformat

    notebook = nbformat.read(notebook_path, as_version=4)
    path = frames_path(notebook_path)
    if own := split(notebook):
        return own
    if not path.is_file():
        return {}
    frames: Frames = json.loads(gzip.decompress(path.read_bytes()))
    figures = {cell.id: sum(map(interactive, cell.get("outputs", []))) for cell in notebook.cells}
    for cell, entries in frames.items():
        if len(entries) != figures.get(cell, 0):
            raise ValueError(f"{path.name}, cell {cell}: got frames of {len(entries)} figures; allowed is as many as "
                             f"the notebook has, {figures.get(cell, 0)}: commit it again")  # fmt: skip
    return frames


def interactive(output: Any) -> bool:
    """Whether an output is the static picture of a widget."""
    return output.get("data", {}).get("text/plain") == "<interactive figure>"


def place(notebook: Any, frames: Frames) -> bool:
    """Put the frames into the outputs as HTML, in place, each for its static picture and the sentence after it.

    Returns whether there were any: then the page needs ``frames.css`` and ``frames.js``.
    """
    for cell in notebook.cells:
        entries, outputs = list(frames.get(cell.get("id", ""), [])), []
        for output in cell.get("outputs", []):
            if outputs and outputs[-1].get("frames") and set(output.get("data", {})) == {"text/plain", "text/markdown"}:
                del outputs[-1]["frames"]
                continue
            if entries and interactive(output):
                output.data = {"text/html": fragment(entries.pop(0))}
                output.metadata, output.frames = type(output.metadata)(), True
            outputs.append(output)
        for output in outputs:
            output.pop("frames", None)
        if "outputs" in cell:
            cell.outputs = outputs
    return bool(frames)


def fragment(frames: Mapping[str, Any]) -> str:
    """One widget as HTML: controls, picture, sentence. Without the page's script it is the picture and the sentence."""
    start = frames["start"]
    picture, sentence = frames["frames"][",".join(map(str, start))]
    width, height = frames["size"]
    rows = "".join(_control(i, control, start[i]) for i, control in enumerate(frames["controls"]))
    buttons = "".join(_button(preset["name"], preset["at"]) for preset in frames["presets"])
    if not any(control["kind"] == "play" for control in frames["controls"]) or len(start) > 1:
        buttons = _button("Reset", start) + buttons
    longest = max(frames["sentences"], key=len)
    name = "f" + hashlib.sha256(json.dumps(frames, sort_keys=True).encode()).hexdigest()[:10]
    data = {key: frames[key] for key in ("start", "frames", "sentences", "pictures")}
    data["texts"] = [control["texts"] for control in frames["controls"]]
    source = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    return (
        f'<figure class="frames"><div class="frames-controls" role="group" aria-label="Controls of the figure below" '
        f'hidden>{rows}{buttons}</div><img src="data:image/webp;base64,{frames["pictures"][picture]}" width="{width}" '
        f'height="{height}" decoding="sync" alt="The figure of these controls; the sentence below says its numbers" '
        f'aria-describedby="{name}"><figcaption><span class="frames-room" aria-hidden="true">{escape(longest)}</span>'
        f'<span class="frames-sentence" id="{name}" role="status" aria-live="polite">'
        f'{escape(frames["sentences"][sentence])}</span></figcaption><small class="frames-note" hidden>'
        f'{escape(frames["note"])}</small><script type="application/json">{source}</script></figure>'
    )


def _control(i: int, control: Mapping[str, Any], at: int) -> str:
    """A native control with the label's words as its name; a slider's value is said by its text, not its position."""
    kind, texts = control["kind"], control["texts"]
    named = f'<span class="frames-label">{escape(control["label"])}</span>'
    if kind == "select":
        options = "".join(
            f'<option value="{j}"{" selected" if j == at else ""}>{escape(text)}</option>'
            for j, text in enumerate(texts)
        )
        return f'<label>{named}<select data-control="{i}" autocomplete="off">{options}</select></label>'
    if kind == "switch":
        on = " checked" if at else ""
        return f'<label>{named}<input type="checkbox" data-control="{i}" autocomplete="off"{on}></label>'
    play = f'<button type="button" data-play="{i}">Play</button>' if kind == "play" else ""
    return (
        f'<label>{named}<input type="range" data-control="{i}" autocomplete="off" min="0" max="{len(texts) - 1}" '
        f'step="1" value="{at}" aria-valuetext="{escape(texts[at])}">'
        f'<span class="frames-value" aria-hidden="true">{escape(texts[at])}</span></label>{play}'
    )


def _button(name: str, at: Sequence[int]) -> str:
    return f'<button type="button" data-at="{",".join(map(str, at))}">{escape(name)}</button>'
