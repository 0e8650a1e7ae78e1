# One command each, the same here and in CI. Every target makes its own set-up; `make VENV=DIR target` uses another environment.
VENV ?= .venv
PYTHON ?= python3
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
PACKAGES := logdevice_py epoch_store client sequencer storage_node server benchmarks tests

.DEFAULT_GOAL := help
.PHONY: help setup java format check lint types imports unit property simulation sim process test soak demo docs clean

help: ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { echo "cannot make $(VENV): Python 3.11 with venv is needed"; exit 1; }
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed, $(VENV) has another"; exit 1; }
	@echo "installing into $(VENV)"
	@$(PY) -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

setup: $(STAMP) ## make the environment $(VENV)

java: ## Java for ZooKeeper's server: installed where that is allowed (Debian as root)
	@command -v java >/dev/null && exit 0; \
	echo "Java is missing; ZooKeeper's server needs it"; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jre-headless >/dev/null; \
	else echo "install a Java runtime (17 or later), for example openjdk-17-jre-headless"; exit 1; fi

format: $(STAMP) ## format the code
	@$(VENV)/bin/ruff format $(PACKAGES)
	@$(VENV)/bin/ruff check --fix-only --quiet $(PACKAGES)

lint: $(STAMP)
	@$(VENV)/bin/ruff format --check --quiet $(PACKAGES) || { echo "run make format"; exit 1; }
	@$(VENV)/bin/ruff check --quiet $(PACKAGES)

types: $(STAMP)
	@$(VENV)/bin/mypy

imports: $(STAMP)
	@$(VENV)/bin/lint-imports --no-cache

unit: $(STAMP)
	@$(PY) -m pytest -q -n 2 tests/unit

check: lint types imports unit ## format, lint, types, import contracts, unit tests

property: $(STAMP)
	@$(PY) -m pytest -q -n 2 tests/property

conformance: $(STAMP)
	@$(PY) -m pytest -q tests/conformance

simulation: $(STAMP)
	@$(PY) -m pytest -q -n 2 tests/simulation

sim: $(STAMP) ## simulate a cluster: SEED=n shows one run, RUNS=n looks for seeds that fail
	@$(PY) -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS),$(if $(SEED),--trace)) $(SIM_FLAGS)

process: $(STAMP)
	@$(PY) -m pytest -q -m "not slow" tests/integration

soak: $(STAMP) java ## longer failure tests: pauses and outages of 30 s, the whole cluster killed again and again
	@$(PY) -m pytest -q -m slow tests/integration

test: $(STAMP) java check ## everything: check, then property, simulation, conformance, ZooKeeper and process tests
	@$(PY) -m pytest -q -n 2 tests/property
	@$(PY) -m pytest -q -n 2 tests/simulation
	@$(PY) -m pytest -q -m "not slow" tests/conformance tests/integration

demo: $(STAMP) $(if $(ZOOKEEPER),java) ## five nodes, real input, the sequencer's node killed half-way, all read back; ZOOKEEPER=1: ZooKeeper is killed too
	@$(PY) -m server.demo $(if $(FILE),--file $(FILE)) $(if $(ZOOKEEPER),--epoch-store zookeeper --stop-epoch-store) $(DEMO_FLAGS)

docs: $(STAMP) ## render the docs that follow from declarations
	@$(PY) -m server.render_docs

clean: ## remove what the targets made
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
