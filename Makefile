# Everything below happens in an environment of its own; pick another folder or Python with
#   make test VENV=.venv-3.12 PYTHON=python3.12
VENV ?= .venv
PYTHON ?= python3

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test check clean

demo: $(STAMP)
	$(BIN)/recollect demo

test: $(STAMP)
	$(BIN)/python -m pytest

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

# The build tool is installed first and pinned like the rest, so that no build fetches a newer one.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Recollect needs Python 3.11 or newer, $(PYTHON) is %d.%d; run: make PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt setuptools
	$(PIP) install -q -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist recollect.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
