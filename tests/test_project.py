"""The project's own promises: pins that agree, a light import, a wheel that works outside the repository."""

import importlib.metadata as metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def name_of(requirement):
    return re.split(r"[<>=!~ \[]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def pins():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line) for line in lines)
    return {name_of(line): line.split("==")[1] for line in lines}


def test_every_dependency_is_pinned_within_what_is_allowed():
    from packaging.requirements import Requirement

    extras = [text for extra in PROJECT["optional-dependencies"].values() for text in extra]
    wanted = [text for text in PROJECT["dependencies"] + extras if name_of(text) != "fedbook"]
    pinned = pins()
    for text in wanted:
        requirement = Requirement(text)
        version = pinned.get(name_of(text))
        assert version is not None, f"{text} has no pin"
        assert requirement.specifier.contains(version), f"{text} does not allow the pin {version}"


def test_conda_users_get_the_same():
    text = (ROOT / "environment.yml").read_text()
    assert f"python{PROJECT['requires-python']}" in text
    assert "- -c constraints.txt" in text and "- -e .[dev]" in text


def test_installed_versions_are_the_pins():
    """Compares public versions: a CPU build's +cpu does not count."""
    different = []
    for name, version in pins().items():
        try:
            found = metadata.version(name).split("+")[0]
        except metadata.PackageNotFoundError:
            found = "absent"
        if found not in (version, "absent"):
            different.append(f"{name} {found} (pin {version})")
    assert not different
    assert metadata.version("torch").split("+")[0] == pins()["torch"]


def test_nothing_replaced_torch():
    present = {d.metadata["Name"].lower() for d in metadata.distributions()}
    assert not present & {"torchvision", "torchaudio", "medmnist", "lightly", "fedlab", "fedml"}


def test_import_is_light():
    """`import fedbook` loads torch at most, never what is heavy beside it."""
    heavy = (
        "sklearn",
        "scipy",
        "matplotlib",
        "IPython",
        "ipywidgets",
        "papermill",
        "nbconvert",
        "pandas",
        "dp_accounting",
    )
    code = f"import fedbook, fedbook.federation, fedbook.papers, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def with_the_core_alone(*words):
    """The command line where every package of the extras is missing."""
    modules = {"jupyterlab", "IPython", "nbclient"}  # what they bring
    for extra in PROJECT["optional-dependencies"].values():
        modules |= {name_of(text).replace("-", "_") for text in extra} - {"fedbook"}
    code = f"import sys; sys.modules.update(dict.fromkeys({modules}))\n"  # an import of them fails
    code += "from fedbook.command import main\nsys.exit(main(sys.argv[1:]))"
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=ROOT)


def test_experiments_need_no_more_than_the_core():
    settings = ("rounds=1", "clients=5", "clients_per_round=0", "train_samples=200", "test_samples=50")
    sets = [word for pair in settings for word in ("--set", pair)]
    done = with_the_core_alone("run", "fedavg", "--problem", "digits", *sets)
    assert done.returncode == 0 and json.loads(done.stdout.splitlines()[-1])["rounds"] == 1, done.stderr
    done = with_the_core_alone("list", "--json")
    assert done.returncode == 0 and "fedsc" in json.loads(done.stdout), done.stderr


def test_the_book_says_what_it_needs():
    done = with_the_core_alone("book", "1")
    assert done.returncode == 1 and 'pip install "fedbook[book]"' in done.stderr and "Traceback" not in done.stderr


def test_ci_runs_the_commands_of_the_readme():
    readme, ci, make = ((ROOT / name).read_text() for name in ("README.md", ".ci/run", "Makefile"))
    for target in ("test", "test-slow"):
        assert f"make {target}" in readme and re.search(rf"\bin .*\b{target}\b.*; do", ci)
        assert re.search(rf"(?m)^{target}: ", make)
    assert "make book" in readme and os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The built wheel, unpacked into an empty folder outside the repository."""
    out, copy = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("copy")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    # building leaves build/lib behind, which a later build would ship: never in the checkout
    shutil.copytree(ROOT / "fedbook", copy / "fedbook", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, copy]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PIP_NO_INDEX": "1"})
    if done.returncode and "setuptools" in done.stderr:  # no isolation needs setuptools in the environment
        done = subprocess.run([*command[:4], *command[5:]], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    place = out / "site"
    built = next(out.glob("*.whl"))
    subprocess.run([sys.executable, "-m", "zipfile", "-e", built, place], check=True)
    return place


def outside(wheel, tmp_path, *words, data=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith("FEDBOOK_DATA")}
    env |= {"PYTHONPATH": str(wheel), "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    if data:
        env["FEDBOOK_DATA"] = str(data)
    return subprocess.run(
        [sys.executable, "-P", "-m", "fedbook", *words], capture_output=True, text=True, cwd=tmp_path, env=env
    )


def test_the_wheel_runs_outside_the_repository(wheel, tmp_path):
    assert not (wheel / "data").exists() and not (wheel / "tests").exists()
    done = outside(wheel, tmp_path, "run", "fedavg", "--problem", "digits", "--set", "rounds=2", "--set", "clients=5",
                   "--set", "clients_per_round=0", "--set", "train_samples=0", "--set", "test_samples=0")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["rounds"] == 2


def test_the_wheel_says_what_to_do_about_missing_data_and_finds_it_by_environment(wheel, tmp_path):
    words = ("run", "fedavg", "--problem", "mnist", "--set", "rounds=1")
    missing = outside(wheel, tmp_path, *words)
    assert missing.returncode == 1 and "fedbook data mnist" in missing.stderr and not missing.stdout
    found = outside(wheel, tmp_path, *words, data=ROOT / "data")
    assert found.returncode == 0, found.stderr
