"""Reading an executed notebook: errors in cells and in widgets, and the records."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fedbook.lab.records import MIME as RECORD
from fedbook.lab.show import WIDGET_MIME as WIDGET_VIEW

WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
PAPERMILL_MARKER = "papermill-error-cell-tag"
CODE_RUN = "fedbook_code_run"  # metadata of a committed notebook: the code that its outputs are of
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def tags(cell: Any) -> list[str]:
    """The tags of a cell."""
    return list(cell.get("metadata", {}).get("tags", []))


def code_digest(notebook: Any) -> str:
    """Sixteen digits that another code of the notebook does not have."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()[:16]


def numbered(notebook: Any) -> Iterator[tuple[int, Any]]:
    """The author's cells with their numbers, from 1; cells that papermill put in carry the number before."""
    number = 0
    for cell in notebook.cells:
        if not {"injected-parameters", PAPERMILL_MARKER} & set(tags(cell)):
            number += 1
        yield number, cell


def place(number: int, cell: Any) -> str:
    """``cell 7 (`model = fit(data)`)``: number and first line of the source."""
    lines = [line for line in cell.get("source", "").splitlines() if line.strip()]
    first = lines[0].strip() if lines else "empty"
    return f"cell {number} (`{first[:80]}`)"


def cell_problems(notebook: Any) -> list[str]:
    """Errors among the outputs, tracebacks on stderr, outputs unlike the committed, cells that never finished."""
    problems = []
    for number, cell in numbered(notebook):
        for output in cell.get("outputs", []):
            problems += [f"{place(number, cell)}: {text}" for text in _bad(output)]
        state = _state(cell)
        if "problem" in state:
            problems.append(f"{place(number, cell)}: {COLOUR.sub('', state['problem'])}")
        if state.get("status") == "running":
            problems.append(f"{place(number, cell)}: was running when the time was up")
    return problems


def _state(cell: Any) -> Mapping[str, Any]:
    """What the tool that ran the cell noted: its ``status``, and nbval's ``problem``."""
    metadata = cell.get("metadata", {})
    return metadata.get("nbval") or metadata.get("papermill") or {}


def counted(notebook: Any) -> dict[str, int]:
    """All cells, code cells passed and failed, cells that nbval compared, and those that agreed."""
    states = [(_state(cell), cell) for cell in notebook.cells if cell.cell_type == "code"]
    done = [state.get("status") for state, _ in states]
    marked = [state for state, cell in states if "nbval-check-output" in tags(cell) and "nbval" in cell.metadata]
    return {
        "cells": len(notebook.cells),
        "passed": done.count("completed"),
        "failed": done.count("failed"),
        "marked": len(marked),
        "agreed": sum(state["status"] == "completed" for state in marked),
    }


def widget_problems(notebook: Any) -> list[str]:
    """Errors that widget callbacks left in the widget state, where no tool looks for them."""
    state = notebook.metadata.get("widgets", {}).get(WIDGET_STATE, {}).get("state", {})
    shown = {
        output["data"][WIDGET_VIEW].get("model_id"): place(number, cell)
        for number, cell in numbered(notebook)
        for output in cell.get("outputs", [])
        if WIDGET_VIEW in output.get("data", {})
    }
    problems = []
    for model_id, model in state.items():
        for output in model.get("state", {}).get("outputs", []) or []:
            where = shown.get(_root(model_id, state, set(shown)), "a widget that no cell shows")
            problems += [f"{where}: in a widget callback, {text}" for text in _bad(output)]
    return problems


def records(notebook: Any) -> tuple[dict[str, Any], list[str]]:
    """All recorded values by name, and the names that were recorded twice."""
    values: dict[str, Any] = {}
    problems = []
    for number, cell in numbered(notebook):
        for output in cell.get("outputs", []):
            for name, value in _recorded(output.get("data", {}).get(RECORD)).items():
                if name in values:
                    problems.append(f"{place(number, cell)}: {name!r} is recorded twice")
                values[name] = value
    return values, problems


def _recorded(data: Any) -> dict[str, Any]:
    if isinstance(data, str):
        data = json.loads(data)
    return dict(data or {})


def _bad(output: Any) -> Iterator[str]:
    """What is wrong with one output."""
    if output.get("output_type") == "error":
        yield COLOUR.sub("", f"{output.get('ename', 'error')}: {output.get('evalue', '')}")
    text = output.get("text", "")
    text = COLOUR.sub("", "".join(text) if isinstance(text, list) else text)
    if output.get("output_type") == "stream" and output.get("name") == "stderr" and "Traceback (most recent" in text:
        yield text.strip().splitlines()[-1] + " (a traceback on stderr)"


def _root(model_id: str, state: Any, shown: set[str]) -> str:
    """The shown widget that contains the model, or the model itself."""
    seen = {model_id}
    while model_id not in shown:
        parents = [
            key
            for key, model in state.items()
            if key not in seen and f"IPY_MODEL_{model_id}" in model.get("state", {}).get("children", [])
        ]
        if not parents:
            return model_id
        model_id = parents[0]
        seen.add(model_id)
    return model_id


def joined(outputs: Iterable[Any]) -> list[Any]:
    """The outputs, neighbouring pieces of one stream as one: where a stream is cut depends on timing."""
    whole: list[Any] = []
    for output in outputs:
        last = whole[-1] if whole else {}
        if output["output_type"] == "stream" == last.get("output_type") and output["name"] == last["name"]:
            whole[-1] = type(last)({**last, "text": last["text"] + output["text"]})
        else:
            whole.append(output)
    return whole
