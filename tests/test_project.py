"""The project's own promises: pins that agree, a light import, a wheel that works outside the repository."""

import importlib.metadata as metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

import fedbook

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


def test_citation_and_changes_know_the_version():
    (cited,) = re.findall(r"(?m)^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = re.findall(r"(?m)^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert cited == changes[0] == fedbook.__version__


SOURCE = (
    ".ci", ".devcontainer", ".github", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in",
    "Makefile", "README.md", "benchmarks", "constraints.txt",
    "data", "environment.yml", "examples", "fedbook", "notebooks", "pyproject.toml", "setup.py", "tests",
)  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the source archive, and of the wheel that was made of it alone."""
    out, copy = tmp_path_factory.mktemp("built"), tmp_path_factory.mktemp("copy")
    # building leaves build/lib behind, which a later build would ship: never in the checkout
    for name in SOURCE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", ".*_checkpoints"))
        else:
            shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, copy]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PIP_NO_INDEX": "1"})
    if done.returncode and "setuptools" in done.stderr:  # no isolation needs setuptools in the environment
        done = subprocess.run([*command[:3], *command[4:]], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return out


@pytest.fixture(scope="module")
def wheel(built):
    """The wheel, unpacked into an empty folder outside the repository."""
    place = built / "site"
    subprocess.run([sys.executable, "-m", "zipfile", "-e", next(built.glob("*.whl")), place], check=True)
    return place


def test_the_source_archive_is_the_whole_project(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        there = {name.partition("/")[2] for name in archive.getnames()}
    wanted = [path.relative_to(ROOT) for name in SOURCE for path in (ROOT / name, *(ROOT / name).rglob("*"))]
    missing = [path.as_posix() for path in wanted if (ROOT / path).is_file() and path.as_posix() not in there
               and not {"__pycache__", ".ipynb_checkpoints"} & set(path.parts)]  # fmt: skip
    assert not missing


def test_the_wheel_holds_every_file_of_the_package(wheel):
    there = {path.relative_to(wheel) for path in wheel.rglob("*")}
    files = [path.relative_to(ROOT) for path in (ROOT / "fedbook").rglob("*") if path.is_file()]
    assert [str(path) for path in files if path not in there and "__pycache__" not in path.parts] == []


def outside(wheel, tmp_path, *words, data=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith("FEDBOOK_DATA")}
    env |= {"PYTHONPATH": str(wheel), "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    if data:
        env["FEDBOOK_DATA"] = str(data)
    return subprocess.run(
        [sys.executable, "-P", "-m", "fedbook", *words], capture_output=True, text=True, cwd=tmp_path, env=env
    )


SMALL = ("--set", "rounds=1", "--set", "clients=5", "--set", "clients_per_round=0", "--set", "train_samples=200")


def test_the_wheel_runs_in_an_empty_folder_without_a_network(wheel, tmp_path):
    """The default problem of chapter 0 is MNIST, which the wheel holds; what it lacks, it says how to come by."""
    assert not (wheel / "data").exists() and not (wheel / "tests").exists()
    done = outside(wheel, tmp_path, "run", "fedavg", *SMALL)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["problem"] == "mnist"
    missing = outside(wheel, tmp_path, "run", "fedavg", "--problem", "cifar10", *SMALL)
    assert missing.returncode == 1 and "fedbook data cifar10" in missing.stderr and not missing.stdout
    (tmp_path / "elsewhere").mkdir()
    shutil.copytree(ROOT / "data" / "mnist", tmp_path / "elsewhere" / "mnist")
    (tmp_path / "elsewhere" / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(b"not it")
    broken = outside(wheel, tmp_path, "run", "fedavg", *SMALL, data=tmp_path / "elsewhere")
    assert broken.returncode == 1 and "elsewhere" in broken.stderr  # FEDBOOK_DATA comes first


def test_the_wheel_s_notebooks_are_copied_to_work_in_and_never_over_something(wheel, tmp_path):
    done = outside(wheel, tmp_path, "notebooks", "mine")
    assert done.returncode == 0, done.stderr
    for part in ("[0-9]*.ipynb", "frames/*", "images/*"):
        there, wanted = (sorted(folder.glob(part)) for folder in (tmp_path / "mine", ROOT / "notebooks"))
        assert [path.name for path in there] == [path.name for path in wanted] and wanted
        assert [path.read_bytes() for path in there] == [path.read_bytes() for path in wanted]
    (tmp_path / "mine" / "00_start_here.ipynb").write_text("my answers")
    again = outside(wheel, tmp_path, "notebooks", "mine")
    assert again.returncode == 2 and "DIR: got 'mine'" in again.stderr and not again.stdout
    assert (tmp_path / "mine" / "00_start_here.ipynb").read_text() == "my answers"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".notebooks")] == []


def test_the_wheel_s_own_notebooks_are_not_rewritten(wheel, tmp_path):
    done = outside(wheel, tmp_path, "book", "1", "--commit")
    assert done.returncode == 2 and "--commit: got it with an installed fedbook" in done.stderr
