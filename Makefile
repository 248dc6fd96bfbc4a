# Two commands are enough on a fresh machine with Python >= 3.11 and make:  make demo   make test
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Of what is installed most is never imported, and the rest is compiled when it is.
PIP    := $(BIN)/pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt
# … and then once, also where the environment says not to: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=
TRUSTED_BASE := core vectors crypto designs protocols runtime net privacy
BASE_TESTS := $(addprefix tests/,$(TRUSTED_BASE) conformance)

.PHONY: demo test check coverage setup slow lint types format bench chromium docs clean

demo: $(VENV)/.demo            ## run the main job on embedded data
	$(BIN)/tacit demo

# One worker more than there are cores, because some tests wait for a network or a browser; each has one thread.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n $$($(BIN)/python -c "import os; print(os.cpu_count() + 1)")

test: $(VENV)/.setup chromium  ## run the quick tests: every protocol, mode, command and page once
	$(PYTEST) -m "not slow and not long"

check: lint types coverage     ## run what continuous integration runs: style, types, quick and longer tests
	$(PYTEST) -m "not slow" $(addprefix --ignore=,$(BASE_TESTS))

slow: $(VENV)/.setup           ## run the tests that take longest
	$(BIN)/pytest -m slow

# Coverage makes Python half as fast again, so it is measured only while the tests of the trusted base run.
coverage: $(VENV)/.setup       ## run the tests of the trusted base, and show how much of it they reach
	$(PYTEST) -m "not slow" $(BASE_TESTS) $(addprefix --cov=tacit.,$(TRUSTED_BASE)) --cov-report=term:skip-covered \
	  --cov-fail-under=85

setup: $(VENV)/.setup          ## make the virtual environment with every extra

lint: $(VENV)/.setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.setup
	$(BIN)/mypy

format: $(VENV)/.setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.setup          ## print measured ratios and write them as JSON to benchmarks/results/
	$(BIN)/python -m benchmarks

docs: $(VENV)/.setup           ## build the site of all pages into build/site; open build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html in a browser"

# Tests in a browser skip, and say so, where there is none and we may not install it.
chromium:
	@command -v chromium >/dev/null || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || \
	  (echo "Installing chromium for tests in a browser …" && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium) || \
	  echo "chromium could not be installed; tests in a browser are skipped"

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || (echo "Tacit needs Python 3.11 or newer; try: make PYTHON=python3.12" && false)
	@echo "Making the virtual environment $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "Installing what the demo needs (a few minutes the first time; the demo itself takes seconds) …"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.setup: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing everything (a few minutes the first time) …"
	@$(PIP) --editable '.[all,dev]'
	@touch $@ $(VENV)/.demo
