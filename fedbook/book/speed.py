"""The page of speed, from the stored tables of the benchmarks: where the package gains and where it loses."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from fedbook.book.page import page

NAME, TITLE = "speed.html", "How fast it is"
TABLES = ("19_peers", "19_by_hand", "19_population", "19_geometry", "19_codecs", "19_chapters")  # of data/results
GPU_TABLES = ("gpu_mlp", "gpu_cnn", "gpu_tower", "gpu_encoder")  # too, where a GPU was at hand
WAYS = {
    "fedbook": "fedbook, a whole round",
    "local": "fedbook, local training alone",
    "modules": "loop over modules",
    "vmap": "vmap by hand",
    "stacked 10": "stacked layers by hand, 10 clients at a time",
    "Flower": "Flower's simulation (Ray, one worker)",
    "pfl": "pfl-research's simulation",
}
INTRODUCTION = """<h1>How fast it is</h1>
<p>Every number on this page comes from a stored table, drawn when the book was built. Times are processor time of one
thread, medians, with quartiles where they stand in brackets; what is compared took turns. Processor time
does not grow while a process waits for its turn, but caches are shared: on a busy machine read ratios, not
milliseconds.</p>"""
PEERS = """<p>All start from the same parameters and take the same batches in the same order (5 SGD steps of 10 images
of MNIST a client, network 784-64-10). After the first round their parameters are at most {apart:.0e} apart, after the
last their training losses agree to a thousandth. Flower runs its own strategy on Ray with one worker, and its time is
the sum over all its processes, to 10 milliseconds; it also moves every client's message
between processes, as it would between machines, which the others do not. The simulators keep general code for any model
and any client; the package and the ways by hand use that all clients here have one network.</p>"""
BY_HAND = """<p>Milliseconds of a round of FedAvg as the package runs it, draws, checks and record included (of towers:
of local training by the committed choice), of local training by the plain loop over modules, and by the fastest way
written by hand for this very network. Below 1 the package is slower.</p>"""
GEOMETRY = """<p>Microseconds a call on {batch:,} points in float64. In brackets stands what computes something else (a
projection as a transport, one distance for all points) and is not counted. The last column is the time of the faster
counted one over ours: below 1 we lose.</p>"""
CODECS = """<p>Megabytes of float32 a second, of the largest message measured. A copy is what the memory can do at best:
every compressor is far from it, and pays only where the network is slower than the compressor.</p>"""
GPU = """<p>The same local training on a GPU, milliseconds of the clock, alone on the card; <i>fedbook</i> is again a
whole round. <i>One graph</i> is the stacked layers by hand, all clients at once, recorded as a CUDA graph and
replayed: no step of it is started from Python, so it shows what starting costs. The package does not do that. All ways
end with the same mean parameters as the loop, to rounding: of convolutions that of TensorFloat-32, at most
{apart:.0e}.</p>"""
ENCODERS = """<p>A step of FedSC's encoder at the paper's size, ResNet-20 of eightfold width, in float32 (its
convolutions in TensorFloat-32, as torch sets it) and in bfloat16 as the package mixes it. The share is of {peak:.0f}
trillion operations a second, which a large bfloat16 product of matrices reached on this card. The paper's step is 2,048
views. The package lays images out as in the first two.</p>"""
PRECISIONS = {"full": "float32", "mixed": "bfloat16", "mixed, channels last": "bfloat16, channels last"}
WORDS = ("copy", "encode", "decode")


def write_speed(out: Path) -> bool:
    """Write the page into ``out``, with what tables there are; False, and no page, if there is none."""
    from fedbook.lab.results import stored

    tables = {}
    for name in (*TABLES, *GPU_TABLES):
        try:
            tables[name.removeprefix("19_")] = stored(name)
        except FileNotFoundError:
            continue
    (out / NAME).unlink(missing_ok=True)
    if tables:
        (out / NAME).write_text(page(TITLE, "".join(_parts(tables))), encoding="utf-8")
    return bool(tables)


def _parts(tables: Mapping[str, Any]) -> Iterator[str]:
    yield INTRODUCTION
    writers = {
        "peers": _peers,
        "by_hand": _by_hand,
        "population": _population,
        "geometry": _geometry,
        "codecs": _codecs,
    }
    for name, write in (writers | {"chapters": _chapters}).items():
        if name in tables:
            yield from write(tables[name])
            yield f"<p><small>{escape(_conditions(tables[name]))}</small></p>"
    measured = {name: tables[name] for name in GPU_TABLES if name in tables}
    if measured:
        yield from _gpu(measured)


def _peers(table: Mapping[str, Any]) -> Iterator[str]:
    rows = table["rows"]
    yield '<h2 id="peers">A round of FedAvg beside other simulators</h2>'
    yield PEERS.format(apart=max(max(row["apart"].values()) for row in rows))
    names = [name for name in WAYS if name in rows[0]["ms"]]
    bars = {f"{row['clients']} clients": {WAYS[name]: _gain(row, name) for name in names} for row in rows}
    yield _bars(bars, "times as fast as the loop over modules (processor time, log)", 1.0)
    head = ["", *(word for row in rows for word in (f"{row['clients']} clients, ms", "loop / it"))]
    body = [
        [WAYS[name], *(word for row in rows for word in (_spread(row["ms"][name]), f"{_gain(row, name):.2f}"))]
        for name in names
    ]
    yield _table(head, body)
    for name, reason in table["absent"].items():
        yield f"<p>{escape(name)} was not measured: {escape(reason)}.</p>"


def _by_hand(table: Mapping[str, Any]) -> Iterator[str]:
    yield '<h2 id="networks">Other networks, and where it loses</h2>'
    yield BY_HAND
    body = []
    for row in table["rows"]:
        ms = row["ms"]
        ours = ms.get("round", ms["local"])
        best = min(value for way, value in ms.items() if way not in ("round", "local"))
        cells = [f"{value:.1f}" for value in (ours, ms["modules"], best)]
        gains = [f"{value / ours:.2f}" for value in (ms["modules"], best)]
        body.append([row["kind"], str(row["clients"]), *cells, *gains])
    yield _table(["network", "clients", "fedbook", "loop", "best by hand", "loop / fedbook", "best / fedbook"], body)


def _gain(row: Mapping[str, Any], name: str) -> float:
    return row["ms"]["modules"]["median"] / max(row["ms"][name]["median"], 1e-9)


def _population(table: Mapping[str, Any]) -> Iterator[str]:
    rows, cohort = table["rows"], table["cohort"]
    yield '<h2 id="population">More clients than take part</h2>'
    yield f"<p>{cohort} clients a round out of ever more. A round costs the same; what grows is the table of who holds "
    yield "what, in memory and at the start.</p>"
    yield _bars({"": {f"{row['clients']:,} clients": 1000 * row["round_seconds"] for row in rows}}, "ms a round", None)
    head = ["clients", "ms a round", "s to start", "MB resident at most"]
    body = [
        [f"{row['clients']:,}", f"{1000 * row['round_seconds']:.0f}", f"{row['start_seconds']:.2f}",
         f"{row['peak_mb']:.0f}"]
        for row in rows
    ]  # fmt: skip
    yield _table(head, body)


def _geometry(table: Mapping[str, Any]) -> Iterator[str]:
    rows = table["rows"]
    yield '<h2 id="geometry">Geometry beside geoopt and pymanopt</h2>'
    yield GEOMETRY.format(batch=rows[0]["batch"])
    body = []
    for row in rows:
        times, counted = row["times"], ["fedbook", *row["counted"]]
        cells = [f"{times[name]:.0f}" if name in times else "-" for name in ("fedbook", "geoopt", "pymanopt")]
        cells = [
            cell if cell == "-" or name in counted else f"({cell})"
            for cell, name in zip(cells, ("fedbook", "geoopt", "pymanopt"), strict=True)
        ]
        best = min((times[name] for name in row["counted"]), default=None)
        body.append(
            [row["manifold"], row["operation"], *cells, "-" if best is None else f"{best / times['fedbook']:.2f}"]
        )
    yield _table(["manifold", "operation", "fedbook", "geoopt", "pymanopt", "best / ours"], body)


def _codecs(table: Mapping[str, Any]) -> Iterator[str]:
    yield '<h2 id="codecs">Compressors beside a copy</h2>'
    yield CODECS
    largest = max((row["size"] for row in table["rows"]), key=lambda size: size[0] * size[1] * size[2])
    body = [
        [row["name"], str(row["bits"]), f"{row['ratio']:.1f}", *(f"{row[word]:,.0f}" for word in WORDS)]
        for row in table["rows"]
        if row["size"] == largest
    ]
    yield _table(["compressor", "bits", "times smaller", *WORDS], body)


def _chapters(table: Mapping[str, Any]) -> Iterator[str]:
    yield '<h2 id="chapters">What the chapters compute</h2>'
    yield "<p>Milliseconds, beside the plain way to the same result; DP-RSVRG stands beside DP-RSGD, which takes fewer "
    yield "gradients a round: that ratio is the price of its correction.</p>"
    body = []
    for row in table["rows"]:
        (ours, one), (plain, other) = row["ms"].items()
        body.append([row["name"], f"{ours}: {_spread(one)}", f"{plain}: {_spread(other)}",
                     f"{other['median'] / one['median']:.2f}"])  # fmt: skip
    yield _table(["what", "fedbook", "beside it", "beside it / fedbook"], body)


def _gpu(tables: Mapping[str, Any]) -> Iterator[str]:
    yield '<h2 id="gpu">On a GPU</h2>'
    trained = [row for name, table in tables.items() if name != "gpu_encoder" for row in table["rows"]]
    if trained:
        yield from _gpu_training(trained)
    if "gpu_encoder" in tables:
        yield from _gpu_encoders(tables["gpu_encoder"]["rows"])
    machines = {(table["device"], table["torch"], table["commit"]) for table in tables.values()}
    words = "; ".join(f"{device}, torch {version}, commit {commit}" for device, version, commit in sorted(machines))
    yield f"<p><small>{escape(f'Measured on {words}.')}</small></p>"


def _gpu_training(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield GPU.format(apart=max(max(row["apart"].values()) for row in rows))
    body = []
    for row in rows:
        ms = row["ms"]
        ours, graph = ms.get("round", ms["local"]), "stacked, one graph"
        best = min(value for way, value in ms.items() if way not in ("round", "local", "modules", graph))
        times = [f"{value:.1f}" for value in (ours, ms["local"], ms["modules"], best, ms[graph])]
        body.append([row["kind"], str(row["clients"]), *times, f"{ms['modules'] / ours:.2f}", f"{best / ours:.2f}"])
    head = ["network", "clients", "fedbook", "its local training", "loop", "best by hand", "one graph"]
    yield _table([*head, "loop / fedbook", "best / fedbook"], body)


def _gpu_encoders(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield ENCODERS.format(peak=rows[0]["peak"])
    head, body = ["views"], [[f"{row['views']:,}"] for row in rows]
    for way in rows[0]["ms"]:
        head += [f"{PRECISIONS[way]}, ms", "share"]
        for cells, row in zip(body, rows, strict=True):
            cells += [f"{row['ms'][way]:.0f}", f"{row['share'][way]:.0%}"]
    yield _table(head, body)


def _spread(ms: Mapping[str, float]) -> str:
    return f"{ms['median']:.1f} ({ms['low']:.1f} to {ms['high']:.1f})"


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    heads = "".join(f'<th scope="col">{escape(word)}</th>' for word in head)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _conditions(table: Mapping[str, Any]) -> str:
    machine = table["machine"]
    versions = "".join(f", {name} {number}" for name, number in table.get("versions", {}).items())
    commit = f", commit {table['commit']}" if table.get("commit") else ""
    return (
        f"Measured on {machine['cores']} cores, load {machine['load_average']} before and "
        f"{machine['load_average_after']} after, Python {machine['python']}, torch {machine['torch']}"
        f"{versions}{commit}."
    )


def _bars(groups: Mapping[str, Mapping[str, float]], label: str, line: float | None) -> str:
    """Horizontal bars, a group a plot, as an image with its numbers as alternative text."""
    from matplotlib.figure import Figure

    from fedbook.lab import style

    with style.used():
        figure = Figure(figsize=style.figsize(1, len(groups)), layout="constrained")
        axes = figure.subplots(1, len(groups), squeeze=False, sharey=True)[0]
        for i, (ax, (name, values)) in enumerate(zip(axes, groups.items(), strict=True)):
            zero = line or 0.0  # bars to the left of the line are slower
            lengths = [value - zero for value in values.values()]
            bars = ax.barh(list(values), lengths, left=zero, color=style.series(0)["color"])
            ax.bar_label(bars, [f"{value:.2f}" if line else f"{value:.0f}" for value in values.values()], padding=2)
            ax.set(title=name, xlabel=label if not line else "")
            ax.margins(x=0.2)
            if line:
                ax.set_xscale("log")
                ax.set_xlim(min(values.values()) / 3, max(values.values()) * 3)
                ax.axvline(line, color="0.4", linestyle=":")
            if i == 0:
                ax.invert_yaxis()
        if line:
            figure.supxlabel(label, fontsize="medium")
        picture = base64.b64encode(style.png(figure)).decode()
    words = "; ".join(
        f"{name} {', '.join(f'{key} {value:.3g}' for key, value in values.items())}".strip()
        for name, values in groups.items()
    )
    return f'<p><img src="data:image/png;base64,{picture}" alt="{escape(f"{label}: {words}")}"></p>'
