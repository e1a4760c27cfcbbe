"""The "python version" batches of CIFAR-10 and CIFAR-100, read without an unrestricted pickle.

Those files are pickles of one dictionary: a NumPy array of bytes, lists of labels, file names. A pickle is a program;
an unrestricted reader runs whatever its maker wrote. Here

* the program is listed first: only the instructions that build dictionaries, lists, tuples, numbers and texts, and no
  more of them than such a file needs;
* the four names such a file may mention (array, dtype, their rebuilding, an encoding) stand for inert objects of this
  module. No function of NumPy or of another library is ever called from within the pickle: there is none to abuse;
* what comes out is checked: keys, shapes, dtype, range of the labels.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedbook import arguments
from fedbook.data.errors import BrokenFile

INSTRUCTIONS = frozenset(
    ("PROTO", "FRAME", "MARK", "STOP", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1")
    + ("BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINUNICODE", "SHORT_BINUNICODE")
    + ("EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "LIST", "APPEND", "APPENDS")
    + ("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD")
    + ("BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET")
)
ARRAY_MAKERS = ("numpy.core.multiarray", "numpy._core.multiarray")  # NumPy 1 and 2
TUPLES = 100  # tuple instructions: deep nests of tuples overflow the C stack when they are hashed


def read_python_batch(
    path: str | Path,
    *,
    rows: int = 10_000,
    columns: int = 3_072,
    labels: Mapping[str, int] | None = None,
) -> dict[str, np.ndarray]:
    """The array ``data`` and the label lists of one batch file.

    Shapes: ``data`` uint8 ``[rows, columns]``; each label list int64 ``[rows]``.
    ``labels`` names each list and its number of classes: ``{"labels": 10}`` (CIFAR-10, the default),
    ``{"fine_labels": 100, "coarse_labels": 20}`` (CIFAR-100, whose training file has 50,000 rows).
    Raises: BrokenFile (a ``ValueError``; names the file and what is wrong), FileNotFoundError; TypeError, ValueError
    (an argument).
    """
    rows, columns = arguments.integer("rows", rows, 1), arguments.integer("columns", columns, 1)
    labels = {"labels": 10} if labels is None else labels
    if not isinstance(labels, Mapping) or not all(isinstance(key, str) for key in labels):
        raise arguments.wrong(TypeError, "labels", labels, "a dictionary: name of a list -> number of classes")
    labels = {key: arguments.integer(f"labels[{key!r}]", classes, 1) for key, classes in labels.items()}
    batch = read_plain_pickle(path, max_bytes=rows * (columns + 64) + 65_536, max_steps=8 * rows + 1_000)
    missing = [key for key in ("data", *labels) if key not in batch]
    if missing:
        raise BrokenFile(path, f"has no {', '.join(missing)}; its keys are {arguments.shown(sorted(batch))}")
    data = batch["data"]
    if not isinstance(data, Array) or data.value is None:
        raise BrokenFile(path, f"data is a {type(data).__name__}, not an array of unsigned bytes")
    if data.value.shape != (rows, columns):
        raise BrokenFile(path, f"data has shape {list(data.value.shape)}; expected is [{rows}, {columns}]")
    lists = {key: _labels(path, key, batch[key], rows, classes) for key, classes in labels.items()}
    return {"data": data.value, **lists}


def read_plain_pickle(path: str | Path, *, max_bytes: int, max_steps: int) -> dict[str, Any]:
    """The dictionary in a pickle of plain values and byte arrays; keys as text, Python 2 texts as ``bytes``.

    Arrays come as ``Array`` (their ``value`` is the uint8 array). Nothing the file says is ever executed.
    Raises: BrokenFile, FileNotFoundError; TypeError, ValueError (an argument).
    """
    path = Path(path)
    max_bytes = arguments.integer("max_bytes", max_bytes, 1)
    max_steps = arguments.integer("max_steps", max_steps, 1)
    with path.open("rb") as file:
        program = file.read(max_bytes + 1)
    if len(program) > max_bytes:
        raise BrokenFile(path, f"is larger than the {max_bytes:,} bytes that are accepted")
    _inspect(path, program, max_steps)
    try:
        result = PlainUnpickler(path, program).load()
    except BrokenFile:
        raise
    except Exception as error:  # the unpickler raises nearly anything on a damaged file
        raise BrokenFile(path, f"is no readable pickle ({type(error).__name__}: {error})") from error
    if not isinstance(result, dict) or not all(isinstance(key, (bytes, str)) for key in result):
        raise BrokenFile(path, f"holds a {type(result).__name__}, not a dictionary with texts as keys")
    return {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in result.items()}


def _inspect(path: Path, program: bytes, max_steps: int) -> None:
    """Refuses a pickle whose list of instructions is not that of plain data; nothing is executed."""
    tuples = end = 0
    try:
        for step, (code, argument, position) in enumerate(pickletools.genops(program)):
            if code.name not in INSTRUCTIONS:
                raise BrokenFile(path, f"refused: the pickle instruction {code.name} does not belong in plain data")
            tuples += code.name.startswith("TUPLE")
            # A store far out in the memo would make the unpickler reserve all places before it.
            far = code.name in ("BINPUT", "LONG_BINPUT") and argument > max_steps
            if step > max_steps or tuples > TUPLES or far:
                raise BrokenFile(path, "refused: more pickle instructions, tuples or stores than such a file needs")
            end = position + 1
    except BrokenFile:
        raise
    except Exception as error:  # pickletools raises ValueError mostly, but promises nothing
        raise BrokenFile(path, f"is cut short or no pickle ({error})") from error
    if end != len(program):
        raise BrokenFile(path, f"{len(program) - end:,} bytes follow the end of the pickle")


def _labels(path: str | Path, key: str, values: Any, rows: int, classes: int) -> np.ndarray:
    if not isinstance(values, list) or len(values) != rows:
        size = f"of {len(values)}" if isinstance(values, list) else "no list"
        raise BrokenFile(path, f"{key} is a {type(values).__name__} ({size}); expected is a list of {rows}")
    if not all(type(value) is int and 0 <= value < classes for value in values):
        raise BrokenFile(path, f"{key} holds something else than whole numbers in 0..{classes - 1}")
    return np.array(values, np.int64)


class PlainUnpickler(pickle.Unpickler):
    """An unpickler for which every name a pickle may mention is an inert object of this module."""

    def __init__(self, path: Path, program: bytes) -> None:
        super().__init__(io.BytesIO(program), encoding="bytes")
        self._path, self._left = path, 2 * len(program)

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for ``module.name``. Raises: BrokenFile for every other name."""
        if module in ARRAY_MAKERS and name == "_reconstruct":
            return Name(self._path, f"{module}.{name}", lambda *_: Array(self._path))
        if (module, name) == ("numpy", "ndarray"):
            return Name(self._path, "numpy.ndarray", None)
        if (module, name) == ("numpy", "dtype"):
            return Name(self._path, "numpy.dtype", lambda code, *_: ByteType(self._path, code))
        if (module, name) == ("_codecs", "encode"):
            return Name(self._path, "_codecs.encode", self._latin1)
        asked = arguments.shown(f"{module}.{name}")
        raise BrokenFile(self._path, f"refused: the pickle asks for {asked}, which plain data never need")

    def persistent_load(self, key: Any) -> Any:
        """Refused. Raises: BrokenFile."""
        raise BrokenFile(self._path, "refused: the pickle refers to objects outside of the file")

    def _latin1(self, text: Any, encoding: Any) -> bytes:
        """How Python 3 writes bytes in protocol 2; bounded, since a stored text can be encoded again and again."""
        if not isinstance(text, str) or encoding not in ("latin1", b"latin1", "latin-1"):
            raise BrokenFile(self._path, "refused: an encoding other than latin1 of a text")
        self._left -= len(text)
        if self._left < 0:
            raise BrokenFile(self._path, "refused: the pickle grows far beyond the size of its file")
        return text.encode("latin1")


class Name:
    """A name that a pickle mentions. It can be called where the true one is called, and not be altered."""

    __slots__ = ("_path", "_name", "_call")

    def __init__(self, path: Path, name: str, call: Callable[..., Any] | None) -> None:
        self._path, self._name, self._call = path, name, call

    def __call__(self, *parts: Any) -> Any:
        if self._call is None:
            raise BrokenFile(self._path, f"refused: the pickle calls {self._name}")
        return self._call(*parts)

    def __setstate__(self, state: Any) -> None:
        raise BrokenFile(self._path, f"refused: the pickle alters {self._name}")


class ByteType:
    """Stands for ``numpy.dtype``: only the unsigned byte exists, so no dtype of objects either."""

    __slots__ = ("_path",)

    def __init__(self, path: Path, code: Any) -> None:
        if code not in ("u1", b"u1", "|u1", b"|u1"):
            raise BrokenFile(
                path, f"refused: an array of dtype {arguments.shown(code)}; allowed is u1 (unsigned bytes)"
            )
        self._path = path

    def __setstate__(self, state: Any) -> None:
        # (version, byte order, subarray, field names, fields, ...): an unsigned byte has none of the three.
        if not isinstance(state, tuple) or len(state) < 5 or any(part is not None for part in state[2:5]):
            raise BrokenFile(self._path, "refused: a dtype with parts or fields")


class Array:
    """Stands for ``numpy.ndarray``: takes the state that a pickled array of unsigned bytes has, checked."""

    __slots__ = ("_path", "value")

    def __init__(self, path: Path) -> None:
        self._path = path
        self.value: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise BrokenFile(self._path, "refused: an array without shape, dtype and bytes")
        _, shape, dtype, columns_first, content = state
        if not isinstance(dtype, ByteType) or not isinstance(content, bytes):
            raise BrokenFile(self._path, "refused: an array that is not of unsigned bytes")
        if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 8:
            raise BrokenFile(self._path, f"refused: an array of shape {arguments.shown(shape)}")
        if math.prod(shape) != len(content):
            raise BrokenFile(self._path, f"an array of shape {list(shape)} comes with {len(content):,} bytes")
        self.value = np.frombuffer(content, np.uint8).reshape(shape, order="F" if columns_first else "C")
