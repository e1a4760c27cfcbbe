"""Run by test_outputs.py: disturb ``fedbook run --out`` and ``compare --out`` at fifty moments, go on, compare files.

Processes are forked from one that has imported PyTorch already. Prints one JSON line: what came, the exit status of the
disturbed process, whether going on gave the files of the undisturbed run.
"""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "FEDBOOK_HEADLESS": "1"}

import torch

from fedbook import __main__, command, interrupts, outputs
from fedbook.federation import loop

torch.set_num_threads(1)

TINY = ["fedavg", "--problem", "digits", "--device", "cpu", "--set", "model=linear", "--set", "clients=10"]
TINY += ["--set", "clients_per_round=5", "--set", "evaluate_every=1"]
RUN = ["run", *TINY, "--set", "rounds=30"]
COMPARE = ["compare", *TINY, "--set", "rounds=5", "--methods", "fedavg,local", "--vary", "partition=iid,classes"]
SIGNALS = (signal.SIGINT, signal.SIGTERM)
RESULTS = {"run": ("result.json", "history.json"), "compare": ("compare.json",)}


def timeless(value):
    if isinstance(value, dict):
        return {key: timeless(entry) for key, entry in value.items() if key not in ("seconds", "commit")}
    return [timeless(entry) for entry in value] if isinstance(value, list) else value


def results(words, folder):
    return [timeless(json.loads((folder / name).read_text())) for name in RESULTS[words[0]]]


def begin(words, folder, prepare=lambda: None):
    """The command in a process of its own; what it says on stderr goes to FOLDER.err. Signals wait until it catches."""
    err = os.open(f"{folder}.err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    pid = os.fork()
    if pid:
        os.close(err)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return pid
    status = 99
    try:
        os.dup2(err, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.argv = ["fedbook", *words, "--out", str(folder)]
        prepare()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupts.catch(command.leave)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        status = __main__.main()
    finally:
        os._exit(status)


def end(pid):
    """The exit status, as a shell says it."""
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return 128 - status if status < 0 else status


def said(folder):
    return Path(f"{folder}.err").read_text()


def full_disk(call):
    """From the ``call``-th file on, nothing more fits."""

    def prepare():
        calls, fsync = [], os.fsync

        def full(descriptor):
            calls.append(1)
            if len(calls) >= call:
                raise OSError(28, "No space left on device")
            fsync(descriptor)

        os.fsync = full

    return prepare


def limited(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def gone_on(words, folder, expected):
    """Whether the run, resumed (or begun again, where it says that nothing is there), gives what is expected."""
    status = end(begin([*words, "--resume"], folder))
    if status == 2 and "there is no run in" in said(folder):
        status = end(begin(words, folder))
    return status == 0 and results(words, folder) == expected


def main(folder):
    loop.SAVING = 0  # a checkpoint after every round: the numbers of writes below are of those
    folder, report = Path(folder), []
    whole, seconds = {}, {}
    for words in (RUN, COMPARE):
        command.main(
            [*words, "--out", str(folder / f"warm-{words[0]}")]
        )  # what is loaded once is paid before the forks
        begun = time.perf_counter()
        assert end(begin(words, folder / words[0])) == 0, said(folder / words[0])
        whole[words[0]], seconds[words[0]] = results(words, folder / words[0]), time.perf_counter() - begun

    def entry(came, words, out, status):
        report.append({"came": came, "status": status, "said": said(out)[-1000:]})
        report[-1]["same"] = gone_on(words, out, whole[words[0]])

    for words, signals in ((RUN, (12, 8, 12)), (COMPARE, (2, 2, 2))):
        for number, moments in zip((signal.SIGINT, signal.SIGTERM, signal.SIGKILL), signals, strict=True):
            for moment in range(moments):
                out = folder / f"{words[0]}-{number.name}-{moment}"
                pid = begin(words, out)
                time.sleep(seconds[words[0]] * moment / moments)
                os.kill(pid, number)
                entry(number.name, words, out, end(pid))
    for prepare in (*map(full_disk, (1, 2, 3, 9, 32, 33)), limited(300), limited(3000)):
        out = folder / f"full-{len(report)}"
        entry("full disk", RUN, out, end(begin(RUN, out, prepare)))
    for moment in range(4):
        out = folder / f"second-{moment}"
        first = begin(RUN, out)
        while not (out / outputs.IDENTITY).exists():
            time.sleep(0.001)
        time.sleep(seconds["run"] * moment / 8)
        os.kill(first, signal.SIGSTOP)
        second = [(end(begin(again, out)), said(out)) for again in (RUN, [*RUN, "--resume"])]
        os.kill(first, signal.SIGCONT)
        refused = all(status == 2 and "in use by process" in text for status, text in second)
        entry("a second run", RUN, out, [end(first), refused])
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
