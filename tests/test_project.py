"""The project's own promises: pins that agree, a light import, a wheel that works outside the repository."""

import importlib.metadata as metadata
import json
import os
import re
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

    wanted = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]
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


def test_ci_runs_the_readme_command():
    readme, ci = (ROOT / "README.md").read_text(), (ROOT / ".ci" / "run").read_text()
    assert "make book" in readme and "make test" in readme
    assert "make test" in ci and os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The built wheel, unpacked into an empty folder outside the repository."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT]
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
