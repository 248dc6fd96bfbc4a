# Two commands are enough on a fresh machine with Python >= 3.11 and make:  make demo   make test
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test setup slow lint types format bench clean

demo: $(VENV)/.demo            ## run the main job on embedded data
	$(BIN)/tacit demo

test: $(VENV)/.setup           ## run every test that is not marked slow
	$(BIN)/pytest -n auto -m "not slow"

slow: $(VENV)/.setup           ## run the long checks
	$(BIN)/pytest -m slow

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

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || (echo "Tacit needs Python 3.11 or newer; try: make PYTHON=python3.12" && false)
	@echo "Making the virtual environment $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "Installing what the demo needs …"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.setup: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing everything (a few minutes the first time) …"
	@$(PIP) --editable '.[all,dev]'
	@touch $@ $(VENV)/.demo
