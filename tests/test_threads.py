"""How threads wait: sleeping by default, as the user says otherwise, one thread where it is too late to say."""

import os
import subprocess
import sys
from pathlib import Path

import fedbook
from benchmarks import threads

ASK = "import os, torch; print(os.environ.get('OMP_WAIT_POLICY'), torch.get_num_threads())"


def answer(code, **said):
    """What a fresh interpreter prints, with nothing said about threads but ``said``."""
    environment = {name: value for name, value in os.environ.items() if name not in threads.SAYING}
    environment |= {"PYTHONPATH": str(Path(fedbook.__file__).parents[1]), **said}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_threads_sleep_unless_somebody_said_otherwise():
    policy, count = answer(f"import fedbook.command; {ASK}")
    assert policy == "PASSIVE" and int(count) == len(os.sched_getaffinity(0))
    assert answer(f"import fedbook; {ASK}", OMP_WAIT_POLICY="ACTIVE") == ["ACTIVE", count]
    assert answer(f"import fedbook; {ASK}", OMP_NUM_THREADS="1") == ["None", "1"]


def test_with_torch_loaded_first_one_thread_is_left():
    assert answer(f"import torch, fedbook; {ASK}") == ["None", "1"]
    chosen = len(os.sched_getaffinity(0)) + 3
    assert answer(f"import torch; torch.set_num_threads({chosen}); import fedbook; {ASK}") == ["None", str(chosen)]


def test_the_benchmark_times_each_way_to_wait():
    assert all(threads.seconds(way, busy, 2, 1) > 0 for way, busy in zip(threads.WAYS, (0, 1, 0), strict=True))
