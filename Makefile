# Everything below happens in an environment of its own; pick another folder or Python with
#   make test VENV=.venv-3.12 PYTHON=python3.12
VENV ?= .venv
PYTHON ?= python3
# EXTRAS=dev,local also installs what trains a local model; its tests are skipped without.
EXTRAS ?= dev
TORCH ?= torch==2.13.0

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q --no-compile
COMPILE := $(BIN)/python -W ignore -m compileall -qq -j 0 $(VENV)/lib || true

# Bytecode is kept, whatever the environment says: otherwise pytest compiles all tests at every run, and each process that a
# test starts compiles Mempiler.
export PYTHONDONTWRITEBYTECODE :=

# make integrations SYSTEMS="mem0 langgraph" runs only these; without it, all.
SYSTEMS ?=

.PHONY: demo test test-slow check mutants docs site integrations clean

demo: $(STAMP)
	$(BIN)/mempiler demo

# Some tests wait for servers and other processes, so three workers keep two cores busy.
test: $(STAMP)
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not slow"

# What needs processes, PostgreSQL, a browser or seconds of training, and what is maltreated, mutated or killed often.
# A file stays with one worker, which makes what its tests share. Workers that looked into all files would take half a
# minute to find the slow tests: a helper that marks tests, such as a conftest.py, stands for its folder.
SLOW = $(shell grep -rl 'mark\.slow' tests --include='*.py' | sed -E '/\/test_[^/]*$$/!s,/[^/]*$$,,')

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n 3 --dist loadfile -m slow -o faulthandler_timeout=1800 $(SLOW)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

# How many small changes of the code does no test notice? Takes up to 40 minutes; see docs/testing.md.
mutants: $(STAMP)
	$(BIN)/python perf/mutants.py

# The generated parts of docs/: tables in the pages, drawings, relative dates. Tests fail where one is not current.
docs: $(STAMP)
	$(BIN)/python docs/fill_pages.py
	$(BIN)/python docs/drawings.py
	$(BIN)/python docs/relative_dates.py

# The documentation, to be opened at .site/index.html; its notebooks run while it is built. The theme's note about a
# successor of MkDocs is no finding about these pages.
site: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# Other people's memory systems, and frameworks for agents, an environment each, from nothing; what cannot be installed
# is a skip with its reason. A test may take minutes where it makes an environment first. These environments are used
# once, so pip compiles nothing (0 is how pip spells this setting).
integrations: $(STAMP)
	rm -rf .systems
	PIP_NO_COMPILE=0 MEMPILER_SYSTEMS=$(CURDIR)/.systems SYSTEMS="$(SYSTEMS)" $(BIN)/python -m pytest -o faulthandler_timeout=900 tests/integrations
	rm -rf .systems

# PyTorch goes first and by itself: a range would bring gigabytes for GPUs to a machine that has none.
# The build tool is installed first and pinned like the rest, so that no build fetches a newer one.
# pip would compile all that it installs with one core, for over a minute. Some packages do not compile as a whole.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Mempiler needs Python 3.11 or newer, $(PYTHON) is %d.%d; run: make PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c constraints.txt setuptools
	$(if $(findstring local,$(EXTRAS)),$(PIP) $(TORCH))
	$(PIP) -c constraints.txt --no-build-isolation -e '.[$(EXTRAS)]'
	@$(COMPILE)
	@touch $@

# Nothing is left to do where EXTRAS has them.
$(VENV)/.docs: $(STAMP)
	$(if $(findstring docs,$(EXTRAS)),,$(PIP) -c constraints.txt --no-build-isolation -e '.[docs]')
	@$(if $(findstring docs,$(EXTRAS)),,$(COMPILE))
	@touch $@

clean:
	rm -rf $(VENV) .systems .site build dist mempiler.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
