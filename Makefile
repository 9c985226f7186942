# `make demo` and `make test` need Python 3.11 or newer and nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-all conformity lint types docs bench format clean

demo: $(VENV)/.demo
	$(BIN)/hyperwrap demo

test: $(VENV)/.dev
	$(MAKE) -j2 lint types docs
	$(BIN)/python -m pytest -n auto -m 'not slow'

test-all: test $(VENV)/.all
	$(BIN)/python -m pytest -n auto -m slow

conformity: $(VENV)/.all
	$(BIN)/python tools/conformity.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/basedpyright

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # with --quiet, nothing would count as a warning

bench: $(VENV)/.demo
	$(BIN)/python benchmarks/sample_and_score.py

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) site runs .conformity

$(VENV)/.demo: pyproject.toml reproductions/nagano2019/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e . -e reproductions/nagano2019
	touch $@

$(VENV)/.dev: pyproject.toml reproductions/nagano2019/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[dev]' -e 'reproductions/nagano2019[all]'
	touch $@ $(VENV)/.demo

$(VENV)/.all: $(VENV)/.dev
	$(PIP) -e '.[all]'
	touch $@
