# On a fresh clone: `make book`, `make test`, `make test-slow`. Needs Python 3.11 to 3.13 and make.
PYTHON ?= python3
PIP_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
# a second make does not install again: only a change of these files does
READY := $(VENV)/.ready

export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: setup book test test-slow test-browser lab gpu gpu-paper clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 13) else "fedbook needs Python 3.11 to 3.13; this is %d.%d (make PYTHON=...)" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	@# torch first and by its pin, so that no other package can bring another build of it
	$(BIN)/python -m pip install $(PIP_ARGS) -c constraints.txt torch
	$(BIN)/python -m pip install $(PIP_ARGS) -c constraints.txt -e ".[dev]"
	touch $(READY)

book: $(READY)
	$(BIN)/python -m fedbook book --profile quick

# two workers; whoever has nothing left takes tests from the other
test: $(READY)
	$(BIN)/ruff check fedbook tests benchmarks data examples
	$(BIN)/ruff format --check fedbook tests benchmarks data examples
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

# the rest: kills in many moments, long outcomes, all stored cells, results and proofs
test-slow: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

# the built pages and the lessons in JupyterLab in a headless Chromium, a part of test-slow; skipped, and said, where there is none
test-browser: $(READY)
	$(BIN)/python -m pytest tests/browser

# on a copy: what is played with in class never shows in git, and no later make touches it
lab: $(READY)
	test -e lab || $(BIN)/python -m fedbook notebooks lab
	$(BIN)/jupyter lab lab

# nine minutes each; what is stored is not measured again, what is left goes on at the next call (BUDGET: seconds)
BUDGET ?= 540
gpu: $(READY)
	$(BIN)/python -m benchmarks.gpu --budget $(BUDGET)

# the data in FEDBOOK_DATA; checkpoints in gpu-paper/, which no other target touches
gpu-paper: $(READY)
	$(BIN)/python -m benchmarks.gpu_paper --budget $(BUDGET)

clean:
	rm -rf build
