"""Times the compressors beside a copy of the same tensor: ``python -m benchmarks.compression [--write FILE]``.

Bandwidth is bytes of the uncompressed tensor over seconds; the figure that counts is its share of the bandwidth at
which the tensor is copied (``clone``). One thread on the CPU, and a second table on the GPU if there is one. Encoding
goes all the way to buffers on the CPU with their checksums, decoding all the way back, draws of the dither included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from benchmarks.population import conditions
from fedbook.compression import COMPRESSORS, Compressor, compressor
from fedbook.experiment import commit
from fedbook.randomness import normal, stream

SIZES = ((4, 100, 32), (4, 100, 128), (4, 64, 4096))
BITS = (2, 3, 4, 8)
NAMES = tuple(name for name in COMPRESSORS if name != "none")


def seconds(function: Callable[[], object], device: str, repeats: int) -> float:
    """Median seconds of one call, the first one not counted."""

    clock = time.process_time if device == "cpu" else time.perf_counter  # the former does not count waiting for a turn

    def once() -> float:
        begun = clock()
        function()
        if device == "cuda":
            torch.cuda.synchronize()
        return clock() - begun

    once()
    return statistics.median(once() for _ in range(repeats))


def rows(device: str, repeats: int) -> Iterator[dict]:
    """One row for each size, compressor and number of bits: megabytes a second of copying, encoding and decoding."""
    for size in SIZES:
        x = normal(size, stream(0, "compression benchmark"), torch.zeros(1)).tanh().to(device)
        megabytes = x.numel() * x.element_size() / 1e6
        rngs = [stream(0, "compression benchmark", client=r) for r in range(size[0])]
        many = max(3, repeats * 13_000 // x.numel())
        for name in NAMES:
            for bits in BITS:
                scheme: Compressor = compressor(name, bits, size[2])
                buffers = scheme.encode(x, rngs)
                copied = seconds(x.clone, device, 20 * many)
                encoded = seconds(lambda f=scheme, x=x, r=rngs: f.encode(x, r), device, many)
                decoded = seconds(lambda f=scheme, x=x, b=buffers: f.decode(b, x), device, many)
                yield {
                    "size": size,
                    "name": name,
                    "bits": bits,
                    "ratio": x.numel() * x.element_size() / sum(buffer.nbytes for buffer in buffers),
                    "copy": megabytes / copied,
                    "encode": megabytes / encoded,
                    "decode": megabytes / decoded,
                }


def line(row: dict) -> str:
    """One line of the table."""
    start = f"{'x'.join(map(str, row['size'])):<12}{row['name']:<9}{row['bits']:>4}{row['ratio']:>8.2f}"
    speeds = "".join(f"{row[word]:>10.0f}" for word in ("copy", "encode", "decode"))
    return start + speeds + "".join(f"{row[word] / row['copy']:>10.4f}" for word in ("encode", "decode"))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compression", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: some seconds")
    parser.add_argument("--write", type=Path, help="a JSON file, for the CPU")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    table = {"what": __doc__.splitlines()[0].split(":")[0] + ".", "commit": commit(), "machine": conditions()}
    table["rows"] = []
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        print(f"{device}: MB of float32 a second, and its share of copying")
        operations = ("copy", "encode", "decode", "encode", "decode")
        print(f"{'messages':<12}{'name':<9}{'bits':>4}{'ratio':>8}" + "".join(f"{word:>10}" for word in operations))
        for row in rows(device, 5 if options.quick else 50):
            print(line(row), flush=True)
            if device == "cpu":
                table["rows"].append(row)
    table["machine"]["load_average_after"] = conditions()["load_average"]
    if options.write is not None:
        options.write.write_text(json.dumps(table, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
