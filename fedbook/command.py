"""The command line. Progress goes to stderr; the last line on stdout is one JSON object. STATUSES: how it exits."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from fedbook import __version__, completion, interrupts, outputs

if TYPE_CHECKING:
    from fedbook.experiment import Plan
    from fedbook.papers.description import Paper

STATUSES = """exit status: 0 done; 1 an error; 2 an argument, or a folder for --out, that cannot be used; 3 a run that
diverged, stopped early (its privacy budget was spent) or ran no round, with its result all the same; 130 interrupted
(Ctrl-C) and 143 terminated (SIGTERM), with what was finished saved in --out, where --resume goes on."""
FILES = {  # what a command leaves in --out; the first ones are what --resume goes on from
    "run": ("checkpoint.pt", "checkpoint.pt.releases", "result.json", "history.json", "rounds.csv"),
    "compare": ("compare.json", "cells.json", "unfinished", "compare.csv", "compare.tex", "compare.png"),
}
LEFT = (*FILES["run"], *FILES["compare"])  # a folder that holds one of them is another command's, too
_own_stderr: int | None = None  # of a process that shares another one's run and is silent but for what only it knows
_called_as: tuple[str, argparse.Namespace] | None = None  # what runs now: an interrupt says how to go on with it


class BadArguments(Exception):
    """Arguments that cannot be used; the text says which, what was given, what is allowed."""


class Parser(argparse.ArgumentParser):
    """Words are never guessed from their beginnings: ``--seed`` of ``run`` and ``--seeds`` of ``compare`` are two."""

    innermost: ClassVar[Parser]  # of the command that was typed, whose options are meant

    def __init__(self, **options: Any) -> None:
        self.known: set[str] = set()
        super().__init__(**options, allow_abbrev=False)

    def parse_known_args(self, *words: Any, **options: Any) -> tuple[argparse.Namespace, list[str]]:
        Parser.innermost = self
        return super().parse_known_args(*words, **options)

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        self.known.update(name for name in names if name.startswith("--"))
        return super().add_argument(*names, **options)

    def error(self, message: str) -> NoReturn:
        given = message.partition("unrecognized arguments: ")[2].split()
        option = next((word.partition("=")[0] for word in given if word.startswith("--")), "")
        known = self.innermost.known
        close = difflib.get_close_matches(option, known, 1, 0.75)
        if wrong := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message):
            close = difflib.get_close_matches(wrong[1], re.findall(r"[\w-]+", wrong[2]), 1)
        if close:
            raise BadArguments(f"{message}; did you mean {close[0]}?")
        name = option.removeprefix("--").replace("-", "_")
        settable = name and "--set" in known
        raise BadArguments(message + (f"; a setting is given as --set {name}=VALUE" if settable else ""))


class Explain(argparse.Action):
    """``--help`` after a paper: all that the paper offers, every setting explained."""

    def __call__(self, parser, namespace, values, option_string=None) -> NoReturn:
        lines = [] if namespace.paper is None else ["", *_explained(_paper(namespace.paper))]
        parser.print_help()
        print(*lines, sep="\n")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    if _processes()[0]:
        _hush()
    try:
        status = _call(sys.argv[1:] if argv is None else argv)
    except BrokenPipeError:  # whoever read our output has gone: nothing is left to say
        status = 1
    return status if _flushed() else status or 1


def leave(number: int) -> NoReturn:
    """End the process for a signal: where nothing is half done, or nothing is worth waiting for."""
    with contextlib.suppress(OSError):
        os.write(2, _farewell(number).encode())
    os._exit(128 + number)


def _call(argv: Sequence[str]) -> int:
    global _called_as
    _called_as = None
    try:
        options = _parser().parse_args(argv)
        _called_as = shlex.join(["fedbook", *map(str, argv)]), options
        if (processes := _processes()[1]) > 1 and options.command != "run":
            raise BadArguments(f"{options.command}: got {processes} processes; allowed is 1 (only run can be shared)")
        with contextlib.nullcontext() if options.command in FILES else interrupts.raised():
            return options.call(options)
    except SystemExit as end:  # --help, --version
        return int(end.code or 0)
    except (BadArguments, outputs.Refused) as error:
        print(f"fedbook: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupt:
        return _interrupted(interrupt)
    except BrokenPipeError:
        raise
    except Exception as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # it broke what it landed in
            return _interrupted(error.__context__)
        if os.environ.get("FEDBOOK_TRACEBACK"):
            raise
        lines = [f"fedbook: {type(error).__name__}: {error}", *_saved()]
        if _own_stderr is None:
            print(*lines, sep="\n", file=sys.stderr)
        elif type(error).__name__ != "ProcessFailed":  # which the first process tells
            os.write(_own_stderr, f"{lines[0]} (in process {_processes()[0]})\n".encode())
        return 1


def _processes() -> tuple[int, int]:
    """The number of this process and how many ``torchrun`` started; (0, 1) without it."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:  # sharding imports PyTorch
        return 0, 1
    from fedbook.federation import sharding

    return sharding.launched()


def _hush() -> None:
    """Send what this process prints nowhere: the first one prints the same."""
    global _own_stderr
    _own_stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)


def _interrupted(interrupt: KeyboardInterrupt) -> int:
    number = signal.SIGTERM if isinstance(interrupt, interrupts.Terminated) else signal.SIGINT
    sys.stderr.write(_farewell(number))
    return 128 + number


def _farewell(number: int) -> str:
    word = "terminated" if number == signal.SIGTERM else "interrupted"
    return "\n".join([f"fedbook: {word}", *_saved(), ""])


def _saved() -> list[str]:
    """Where the work done so far is and how to go on with it, a line of text; none for a command that saves nothing."""
    if _called_as is None or _called_as[1].command not in FILES:
        return []
    line, options = _called_as
    if options.out is None:
        return ["fedbook: nothing was saved (there was no --out)"]
    for path in (options.out / name for name in FILES[options.command][:3]):
        if os.path.exists(path):
            return [f"fedbook: {path} has what was finished; to go on: {line}{'' if options.resume else ' --resume'}"]
    return [f"fedbook: nothing was finished yet in {options.out}"]


def _flushed() -> bool:
    """Write out what is buffered; whether that worked. What is left is dropped, or Python would try again at exit."""
    good = True
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            if stream is not None:  # closed by the shell (>&-)
                stream.flush()
        except OSError as error:
            good = False
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if name == "stdout" and not isinstance(error, BrokenPipeError):
                print(f"fedbook: stdout: {error.strerror}", file=sys.stderr)
    return good


def _parser() -> Parser:
    parser = Parser(
        prog="fedbook", description="Federated learning as a workbook: experiments, chapters, data.", epilog=STATUSES
    )
    parser.add_argument("--version", action="version", version=f"fedbook {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)

    listing = commands.add_parser("list", help="papers, methods, problems, profiles; of one paper every setting")
    words = listing.add_argument("paper", nargs="?", help="a name, a chapter's number or its notebook")
    words.completer = completion.papers
    listing.add_argument("--json", action="store_true", help="as JSON")
    listing.set_defaults(call=_list)

    about = "run one method; the last line printed is its result as JSON"
    running = commands.add_parser("run", help=about, description=about, add_help=False, epilog=STATUSES)
    _experiment(running)
    running.add_argument("--method", help="default the paper's own").completer = completion.methods
    running.add_argument("--seed", type=_whole, default=0, help="of every draw; default 0")
    running.add_argument("--out", type=_folder, help="folder for checkpoint, rounds.csv, history and result.json")
    running.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out, same settings")
    running.add_argument("--engine", choices=("simulator", "flower"), default="simulator",
                         help="flower: Flower's deployment engine, on this machine")  # fmt: skip
    running.add_argument("--nodes", type=_whole, help="of --engine flower; default 3")
    running.set_defaults(call=_run)

    about = "the paper's table: methods side by side over several seeds"
    comparing = commands.add_parser("compare", help=about, description=about, add_help=False, epilog=STATUSES)
    _experiment(comparing)
    comparing.add_argument("--methods", help="comma-separated; default all").completer = completion.methods
    comparing.add_argument("--seeds", type=_whole, default=3, help="how many: 0, 1, ...; default 3")
    lists = {"action": "append", "default": [], "metavar": "KEY=V1,V2"}
    comparing.add_argument(
        "--vary", **lists, help="an axis of the table; ';' between values with commas"
    ).completer = completion.settings
    comparing.add_argument("--tune", **lists, help="chosen on held-out data").completer = completion.settings
    lists["metavar"] = "KEY=VALUE"
    comparing.add_argument("--tune-set", **lists, help="changes while tuning").completer = completion.settings
    comparing.add_argument("--out", type=_folder, help="folder for compare.json, .csv, .tex and .png")
    comparing.add_argument("--resume", action="store_true", help="go on from what was saved in --out, same settings")
    comparing.set_defaults(call=_compare)

    booking = commands.add_parser("book", help="run notebooks, write the pages of all: build/book/index.html")
    words = booking.add_argument("chapters", nargs="*", metavar="CHAPTER", help="numbers or names; default all")
    words.completer = completion.chapters
    words = booking.add_argument("--profile", default="quick", help="sizes of their runs; default quick")
    words.completer = completion.profiles
    booking.add_argument("--out", type=_folder, default=Path("build/book"), help="default build/book")
    booking.add_argument(
        "--commit", action="store_true", help="rewrite the notebooks in place, with their own parameters"
    )
    booking.set_defaults(call=_book)

    copying = commands.add_parser("notebooks", help="copy the chapters' notebooks to a new folder, to work in")
    copying.add_argument("to", metavar="DIR", type=_folder, help="not there yet, or empty: nothing is overwritten")
    copying.set_defaults(call=_notebooks)

    beginning = commands.add_parser("new-paper", help="in a checkout: a new paper's folder, notebooks, tests, contents")
    beginning.add_argument("name", metavar="NAME", help="small letters, digits and _: of the folder and the notebooks")
    beginning.set_defaults(call=_new_paper)

    asking = commands.add_parser("exercises", help="list the exercises, or copy the notebooks without their solutions")
    asking.add_argument("--student", metavar="DIR", type=_folder, help="for the copy: not there yet, or empty")
    asking.set_defaults(call=_exercises)

    grading = commands.add_parser("grade", help="run the notebooks that students handed in; a table of their verdicts")
    grading.add_argument("folder", metavar="DIR", type=_folder, help="a folder a student, or a notebook a student")
    grading.add_argument("--out", type=_folder, metavar="FILE", help="the table as CSV, one line an exercise")
    grading.add_argument("--timeout", type=float, default=60.0, help="seconds a cell may take; default 60")
    grading.set_defaults(call=_grade)

    data = commands.add_parser("data", help="fetch, verify and report a dataset")
    data.add_argument("name", nargs="?", help="of a dataset").completer = completion.datasets
    data.add_argument("--list", action="store_true", help="the datasets there are")
    data.add_argument("--root", type=_folder, help="where it lies or goes; default: see data/README.md")
    data.add_argument("--verify", action="store_true", help="only report what is there")
    data.add_argument("--from", type=Path, dest="benchmark", metavar="DIR", help="mimic3: the benchmark's CSVs")
    data.set_defaults(call=_data)
    completion.offer(parser)
    return parser


def _experiment(parser: argparse.ArgumentParser) -> None:
    words = parser.add_argument("paper", help="a name, a chapter's number or its notebook")
    words.completer = completion.papers
    parser.add_argument("-h", "--help", nargs=0, action=Explain, help="after PAPER: what it offers, every setting")
    parser.add_argument("--problem", help="default the paper's first").completer = completion.problems
    words = parser.add_argument("--profile", default="quick", help="quick (the default), standard or paper: sizes")
    words.completer = completion.profiles
    words = parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes", help="a setting; may be repeated"
    )
    words.completer = completion.settings
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}; allowed is a whole number") from None


def _words(text: str) -> list[str]:
    """The words of a list separated by commas, or by semicolons where a word holds commas; blanks allowed."""
    return [word.strip() for word in text.split(";" if ";" in text else ",")]


def _folder(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("got ''; allowed is the name of a folder")
    return Path(text)


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key or not value:
            raise BadArguments(f"{option}: got {text!r}; allowed is KEY=VALUE")
        if key in pairs:
            raise BadArguments(f"{option}: got {key} twice; allowed is once")
        pairs[key] = value
    return pairs


def _warn(sentences: Iterable[str]) -> None:
    """What may not be as the user thinks it is, without being wrong."""
    for sentence in sentences:
        print(f"fedbook: warning: {sentence}", file=sys.stderr)


def _paper(name: str) -> Paper:
    from fedbook import papers

    try:
        return papers.paper(name)
    except ValueError as error:
        raise BadArguments(str(error)) from error


def _list(options: argparse.Namespace) -> int:
    from fedbook import papers

    chosen = [_paper(name) for name in ([options.paper] if options.paper else papers.NAMES)]
    if options.json:
        print(json.dumps({
            paper.name: {
                "title": paper.title, "methods": dict(paper.methods), "problems": dict(paper.problems),
                "profiles": {word: dict(changes) for word, changes in paper.profiles.items()},
                "settings": paper.described(),
            }
            for paper in chosen
        }))  # fmt: skip
        return 0
    for paper in chosen:
        print(*_explained(paper, settings=options.paper is not None), sep="\n")
    if options.paper is None:
        print("The settings of a paper: fedbook list PAPER")
    return 0


def _explained(paper: Paper, settings: bool = True) -> Iterator[str]:
    """Lines of text: title, methods, problems, profiles and, group by group, every setting."""
    from fedbook.settings import explained

    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    yield f"{paper.name}: {paper.title}"
    for title, entries in (("methods", paper.methods), ("problems", paper.problems)):
        yield f"  {title}"
        yield from (f"    {word:22} {line}" for word, line in entries.items())
    yield "  profiles, each a change of the settings"
    for word, changes in paper.profiles.items():
        text = ", ".join(f"{key}={value}" for key, value in changes.items()) or "as they are"
        yield from textwrap.wrap(f"{word:22} {text}", width, initial_indent=" " * 4, subsequent_indent=" " * 27)
    rows = paper.described().values() if settings else ()
    for group in dict.fromkeys(row["group"] for row in rows):
        yield f"  --set NAME=VALUE. {group}"
        for row in (row for row in rows if row["group"] == group):
            yield from textwrap.indent("\n".join(explained(row, width - 4)), " " * 4).splitlines()


def _run(options: argparse.Namespace) -> int:
    from fedbook import experiment
    from fedbook.federation import sharding

    changes = _pairs("--set", options.changes)
    paper = _paper(options.paper)
    _resumable(options)
    try:
        plan = experiment.plan(
            paper, options.method, options.problem, options.profile, changes, (options.seed,), options.device
        )
    except (ValueError, TypeError) as error:
        raise BadArguments(str(error)) from error
    if options.engine == "flower":
        return _run_on_flower(options, plan)
    if options.nodes is not None:
        raise BadArguments(f"--nodes: got {options.nodes}; allowed with --engine flower only")
    with sharding.joined(plan.device):
        return _run_first(options, plan) if sharding.rank() == 0 else _run_along(options, plan)


def _run_on_flower(options: argparse.Namespace, plan: Plan) -> int:
    try:
        from fedbook.engines import loopback
    except ImportError as error:
        allowed = "simulator, or flower after: pip install 'fedbook[flower]'"
        raise BadArguments(f"--engine: got flower, but {error.name} is not installed; allowed is {allowed}") from error
    if options.out is None:
        raise BadArguments("--out: got nothing; allowed with --engine flower is a folder, for what nodes must remember")
    nodes = 3 if options.nodes is None else options.nodes
    identity = {"command": "run", "engine": "flower", "nodes": nodes, "paper": plan.paper.name}
    identity |= {"method": plan.method, "problem": plan.problem, "seed": options.seed, **plan.settings()}
    with outputs.claimed(options.out, identity, LEFT, options.resume, prolonged="rounds"):
        try:
            with interrupts.raised():  # the programs are ended before this process is
                result = loopback.launch(plan, options.out, nodes)
        except ValueError as error:
            raise BadArguments(str(error)) from error
    for lost in result["lost"]:
        print(f"fedbook: went on without {lost}", file=sys.stderr)
    if result["stopped"]:
        print(f"fedbook: stopped after {result['rounds']} rounds: {result['stopped']}", file=sys.stderr)
    print(json.dumps(result))
    return 0 if result["ended"] == "done" else 3


def _run_along(options: argparse.Namespace, plan: Plan) -> int:
    """A further process of a run: it does its part of the work, and the first one writes and prints."""
    from fedbook.federation import run

    path = None if options.out is None else options.out / FILES["run"][0]
    run(plan.rounds(path=path, resume=options.resume))
    return 0


def _run_first(options: argparse.Namespace, plan: Plan) -> int:
    from fedbook import advice, experiment
    from fedbook.data import BrokenFile
    from fedbook.progress import phase

    paper = plan.paper
    identity = {"command": "run", "paper": paper.name, "method": plan.method, "problem": plan.problem}
    identity |= {"seed": options.seed, **plan.settings()}
    with outputs.claimed(options.out, identity, LEFT, options.resume, prolonged="rounds") as saved:
        path, log = (None if options.out is None else options.out / name for name in (FILES["run"][0], "rounds.csv"))
        try:
            with phase("loading data"):
                rounds = plan.rounds(path=path, resume=options.resume, log=log)  # refuses bad settings before any work
        except BrokenFile:
            raise  # a bad file, not a bad argument
        except (ValueError, TypeError) as error:
            raise BadArguments(str(error)) from error
        if options.resume:
            print(f"fedbook: {max(rounds.t, 0)} of {rounds.total} rounds are in {options.out}", file=sys.stderr)
        if saved and rounds.t < rounds.total:  # a shorter run's, which the checkpoint holds too
            for name in FILES["run"][2:]:
                (options.out / name).unlink(missing_ok=True)
        _warn(advice.idle([plan]))
        label = f"{paper.name} {plan.method}"
        rounds, seconds = experiment.execute(rounds, options.out, label, paper.metric)
        line = json.dumps(experiment.result(rounds, plan, seconds))
        if options.out is not None:
            outputs.write(options.out / "result.json", line + "\n")
    how, why = experiment.ended(rounds, paper.metric)
    if how != "done":
        print(f"fedbook: {how} after {len(rounds.history)} of {rounds.total} rounds: {why}", file=sys.stderr)
    print(line)
    return 0 if how == "done" else 3


def _resumable(options: argparse.Namespace) -> None:
    if options.resume and options.out is None:
        raise BadArguments("--resume: got no --out; allowed is --resume with the --out of the earlier run")


def _compare(options: argparse.Namespace) -> int:
    from fedbook import advice, arguments, experiment

    paper = _paper(options.paper)
    _resumable(options)
    try:
        arguments.integer("seeds", options.seeds, 1, 1000)
        methods = list(paper.methods if options.methods is None else dict.fromkeys(_words(options.methods)))
        changes = _pairs("--set", options.changes)
        vary = {key: _words(text) for key, text in _pairs("--vary", options.vary).items()}
        tune = {key: _words(text) for key, text in _pairs("--tune", options.tune).items()}
        shorter = _pairs("--tune-set", options.tune_set)
        options_named = ("--set", "--vary", "--tune", "--tune-set")
        vary, tune = experiment.axes(paper, changes, vary, tune, shorter, options_named)
        asked = paper, methods, options.problem, options.profile, changes, vary, tune, shorter, options.device
        plans = experiment.plans(*asked)
        where = options.problem, options.profile, changes, (0,), options.device
        settled = experiment.plan(paper, methods[0], *where, whole=False)
    except (ValueError, TypeError) as error:
        raise BadArguments(str(error)) from error
    _warn(advice.idle(plans))
    identity = {"command": "compare", "paper": paper.name, "methods": methods, "problem": settled.problem}
    identity |= {"device": settled.device, "seeds": options.seeds, "vary": vary, "tune": tune, "tune_set": shorter}
    identity |= settled.settings()
    with outputs.claimed(options.out, identity, LEFT, options.resume):
        if options.resume:
            cells = (experiment.saved_in(options.out) or {"cells": []})["cells"]
            print(f"fedbook: {len(cells)} cells are in {options.out}", file=sys.stderr)
        try:
            table = experiment.compare(
                paper, methods, options.problem, options.profile, changes, options.seeds, vary, tune or None, shorter,
                options.device, options.out,
            )  # fmt: skip
        except experiment.BadSettings as error:  # what only the problem or the method can refuse
            raise BadArguments(str(error)) from error
        from fedbook.lab import results
        from fedbook.lab.draw import save_comparison

        data = results.frame(table)
        shown = results.table(data, [table["metric"]], digits=4)
        if options.out is not None:
            with interrupts.held():
                experiment.save(table, options.out)
                outputs.write(options.out / "compare.csv", data.to_csv(index=False))
                outputs.write(options.out / "compare.tex", shown.to_latex(escape=True))
                save_comparison(table, options.out / "compare.png")
    print(f"{table['paper']} on {table['problem']}, {table['seeds']} seeds, profile {table['profile']}")
    print(shown.reset_index().to_string(index=False))
    print(*advice.judged(paper, table), *advice.tuned(paper, table), sep="\n")
    odd = [line for cell in table["cells"] for line in _odd(cell)]
    print(*odd, sep="\n", end="\n" if odd else "", file=sys.stderr)
    print(json.dumps(experiment.summary(table)))
    return 3 if odd else 0


def _odd(cell: dict) -> Iterator[str]:
    """A line for each way but "done" in which runs of a cell ended."""
    name = " ".join([cell["method"], *(f"{key}={value}" for key, value in cell["varied"].items())])
    ends = [run["ended"] for run in cell["runs"]]
    for how in dict.fromkeys(ends):
        if how != "done":
            yield f"fedbook: {name}: {ends.count(how)} of {len(ends)} runs ended with: {how}"


def _book(options: argparse.Namespace) -> int:
    from fedbook import arguments, book, shipped

    if not _needs_book():
        return 1
    from fedbook.book.commit import commit_all

    try:
        chosen = book.select(*options.chapters) or list(book.CHAPTERS)
        arguments.one_of("profile", options.profile, book.contents.PROFILES)
    except (ValueError, TypeError) as error:
        raise BadArguments(str(error)) from error
    if options.commit and book.notebooks_folder() == shipped.IN_WHEEL / "notebooks":
        raise BadArguments("--commit: got it with an installed fedbook; allowed is in a checkout, or with ./notebooks")
    if options.commit:
        reports = commit_all([book.notebooks_folder() / one.file for one in chosen])
    else:
        reports = book.build(options.profile, [one.name for one in chosen], options.out)
    print(book.table(reports))
    good = all(report.ok for report in reports)
    where = None if options.commit else str(options.out / "index.html")
    print(json.dumps({"chapters": [report.name for report in reports], "ok": good, "index": where}))
    return 0 if good else 1


def _notebooks(options: argparse.Namespace) -> int:
    return _copied(options.to)


def _copied(to: Path, change: Callable[[str], str] | None = None) -> int:
    from fedbook import shipped

    source = shipped.folder("notebooks", "00_start_here.ipynb")
    if source is None:
        raise FileNotFoundError("the notebooks do not come with this copy of fedbook; a wheel or a checkout has them")
    try:
        copied = shipped.copy_notebooks(source, to, change)
    except ValueError as error:
        raise BadArguments(str(error)) from error
    print(f"{len(copied)} notebooks; to open them: jupyter lab {to}", file=sys.stderr)
    print(json.dumps({"folder": str(to), "notebooks": [path.name for path in copied]}))
    return 0


def _needs_book() -> bool:
    """Whether what runs notebooks is installed; if not, that is said."""
    there = all(importlib.util.find_spec(name) for name in ("nbval", "papermill"))
    if not there:
        print('fedbook: notebooks are run by papermill and nbval: pip install "fedbook[book]"', file=sys.stderr)
    return there


def _new_paper(options: argparse.Namespace) -> int:
    if not _needs_book():
        return 1
    from fedbook.book import skeleton

    try:
        made = skeleton.new_paper(options.name)
    except (ValueError, TypeError) as error:
        raise BadArguments(str(error)) from error
    print(*(f"  {path}" for path in made), sep="\n", file=sys.stderr)
    print(json.dumps({"paper": options.name, "files": [str(path) for path in made]}))
    return 0


def _exercises(options: argparse.Namespace) -> int:
    if not _needs_book():
        return 1
    from fedbook.book import classroom

    if options.student is not None:
        return _copied(options.student, classroom.for_students)
    known = {id: chapter.name for id, chapter in classroom.of_chapters().items()}
    width = max(len(name) for name in known.values())
    for id, name in known.items():
        kind, words = classroom.asked()[id]
        print(f"{id:6} {name:{width}}  {kind}: {words}")
    print(json.dumps(known))
    return 0


def _grade(options: argparse.Namespace) -> int:
    if not _needs_book():
        return 1
    import pandas

    from fedbook.book import classroom

    if options.out is not None:
        out = options.out.resolve()  # where a link leads
        if (out.exists() and not out.is_file()) or not out.parent.is_dir():
            raise BadArguments(f"--out: got {str(options.out)!r}; allowed is a plain file in a folder that is there")
    so_far: list[classroom.Grade] = []

    def told(own: list[classroom.Grade]) -> None:
        so_far.extend(own)
        print(classroom.table(own), file=sys.stderr, flush=True)
        if options.out is not None:
            outputs.write(out, pandas.DataFrame(so_far).to_csv(index=False))

    try:
        grades = classroom.grade(options.folder, options.timeout, told=told)
    except (ValueError, TypeError) as error:
        raise BadArguments(str(error)) from error
    print(classroom.table(grades))
    counts = {status: sum(one.status == status for one in grades) for status in classroom.STATUSES}
    print(json.dumps({"students": len({one.student for one in grades}), **counts}))
    return 0


def _data(options: argparse.Namespace) -> int:
    from fedbook.data import BrokenFile, fetch
    from fedbook.data.sources import SOURCES

    if options.list:
        print(*(f"{name:22} {source.access:8} {source.note}" for name, source in SOURCES.items()), sep="\n")
        return 0
    if options.name is None:
        raise BadArguments("name: got none; allowed is a dataset's name, or --list")
    try:
        text, entry, ok = fetch.main_report(options.name, options.root, not options.verify, options.benchmark)
    except BrokenFile:
        raise  # a bad file, not a bad argument
    except (ValueError, TypeError) as error:
        raise BadArguments(str(error)) from error
    print(text, file=sys.stderr)
    print(json.dumps(entry))
    return 0 if ok else 1
