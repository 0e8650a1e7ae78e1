# One command each, the same here and in CI. Every target makes its own set-up; `make VENV=DIR target` uses another environment.
VENV ?= .venv
PYTHON ?= python3
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
RUNNABLE := $(VENV)/.runs
SITE := $(VENV)-site/.installed
GO := $(shell command -v go || echo /usr/local/go/bin/go)
PACKAGES := logdevice_py epoch_store client sequencer storage_node streams ldquery server indexlog benchmarks tests examples pyspark_logdevice.py pyspark_indexlog.py

# where it is set (often in containers), each of the thousand programs that tests start would compile its modules anew: a second each
unexport PYTHONDONTWRITEBYTECODE

COMMA := ,
# what is named by ENGINES, or all; what cannot be fetched is left out of the run, which says so
PEERS = $(filter-out logdevice,$(subst $(COMMA), ,$(or $(ENGINES),jetstream redis kafka bookkeeper)))
FETCH_PEERS = $(if $(PEERS),@$(PY) -m benchmarks.ldbench.cli fetch $(PEERS) || true)
BENCH_CHOICE = $(if $(ENGINES),--engines $(ENGINES)) $(if $(WORKLOADS),--workloads $(WORKLOADS)) $(BENCH_FLAGS)

.DEFAULT_GOAL := help
.PHONY: help setup java browser promtool format check lint types imports unit property simulation sim maintenances deliberate placement-proof balance mutants process spark spark-long chaos linearizability groups steps test soak demo docs goldens stories bench bench-full storage-figures fuzz hostile site audit upgrade release release-check release-try clean

help: ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

define ENVIRONMENT
@test -x $(PY) || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; name it: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { echo "cannot make $(VENV): remove what is there and install the venv module (Debian: python3-venv)"; exit 1; }
@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed, $(VENV) has another: remove it"; exit 1; }
endef
# pip spends two minutes of a processor where uv spends half of one, but knows every way to a package index that a machine may have; it tells what it does
INSTALL_AND_TELL := $(PY) -m pip install --disable-pip-version-check
INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check

# what running it takes; a whole installation brings it along
$(RUNNABLE): pyproject.toml
	$(ENVIRONMENT)
	@echo "installing what it needs to run into $(VENV): a few packages, some 10 to 30 seconds the first time"
	@$(INSTALL) -e '.[server]' || { echo "the installation failed; it needs a package index"; exit 1; }
	@touch $@

$(STAMP): pyproject.toml
	$(ENVIRONMENT)
	@echo "installing everything for work on it into $(VENV): some 70 packages (1 GB), a minute or more the first time"
	@$(INSTALL) uv && $(VENV)/bin/uv pip install --python $(PY) -e '.[test]' || $(INSTALL_AND_TELL) -e '.[test]' || { echo "the installation failed; it needs a package index"; exit 1; }
	@touch $@ $(RUNNABLE)

# apart from the rest: nothing that we run needs it
$(SITE): pyproject.toml
	$(ENVIRONMENT)
	@test -x $(VENV)-site/bin/python || $(PYTHON) -m venv $(VENV)-site
	@$(VENV)-site/bin/python -m pip install --quiet --disable-pip-version-check "mkdocs-material>=9.6,<10"
	@touch $@

setup: $(STAMP) ## make the environment $(VENV)
	@echo "$(VENV) is ready. Next: . $(VENV)/bin/activate, then ld-dev-cluster up --dir /tmp/ld (make demo shows it at work, make check looks after a change)"

java: ## Java for ZooKeeper's server: installed where that is allowed (Debian as root)
	@command -v java >/dev/null && exit 0; \
	echo "Java is missing; ZooKeeper's server needs it"; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jre-headless >/dev/null; \
	else echo "install a Java runtime (17 or later), for example openjdk-17-jre-headless"; exit 1; fi

browser: ## Chromium for tests of the console: installed where that is allowed (Debian as root); without one they are skipped
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || echo "Chromium could not be installed: tests of the console in a browser are skipped"; \
	else echo "there is no Chromium: tests of the console in a browser are skipped"; fi

promtool: ## Prometheus's tool, for tests of conf/alerts.yml: unpacked into the environment, nothing is started; without it they are skipped
	@command -v promtool >/dev/null || test -x $(VENV)/promtool/usr/bin/promtool && exit 0; \
	if command -v apt-get >/dev/null; then \
	  { { test "$$(id -u)" != 0 || apt-get update -qq; } && mkdir -p $(VENV)/promtool && cd $(VENV)/promtool && apt-get download -qq prometheus && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb; } >/dev/null 2>&1 || echo "promtool could not be fetched: tests of alerts are skipped"; \
	else echo "there is no promtool: tests of alerts are skipped"; fi

format: $(STAMP) ## format the code
	@$(VENV)/bin/ruff format $(PACKAGES)
	@$(VENV)/bin/ruff check --fix-only --quiet $(PACKAGES)

lint: $(STAMP)
	@$(VENV)/bin/ruff format --check --quiet $(PACKAGES) || { echo "run make format"; exit 1; }
	@$(VENV)/bin/ruff check --quiet $(PACKAGES)
	@$(PY) -m tests.dead_code

types: $(STAMP)
	@$(VENV)/bin/mypy

imports: $(STAMP)
	@$(VENV)/bin/lint-imports --no-cache

unit: $(STAMP)
	@$(PY) -m pytest -q -n 2 -m "not slow" tests/unit tests/golden

check: lint types imports unit ## format, lint, types, import contracts, unit tests

property: $(STAMP)
	@$(PY) -m pytest -q -n 2 -m "not slow" tests/property

conformance: $(STAMP)
	@$(PY) -m pytest -q tests/conformance

simulation: $(STAMP)
	@$(PY) -m pytest -q -n 2 -m "not slow" tests/simulation tests/history tests/stories

sim: $(STAMP) ## simulate a cluster: SEED=n replays one run, RUNS=n looks for seeds that fail; LOSS=1 destroys more than is tolerated; REBUILD=1 loses nodes for good; FEATURES=1 runs applications of streams, guards, groups and others; RUNS=n DEVOTED=regions runs only seeds with regions; STORE=extents: what shards are stored in; RUNS=n CAMPAIGN=1 [REPORT=file] [RESUME=file]
	@$(PY) -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS),$(if $(RESUME),,--trace)) $(if $(LOSS),--loss) $(if $(REBUILD),--rebuild) $(if $(FEATURES),--features) $(if $(DEVOTED),--devoted "$(DEVOTED)") $(if $(STORE),--store $(STORE)) $(if $(CAMPAIGN),--campaign) $(if $(REPORT),--report $(REPORT)) $(if $(RESUME),--resume $(RESUME)) $(SIM_FLAGS)

maintenances: $(STAMP) ## random maintenances in simulated clusters under load, with nodes that die beside them, and what they came to: COUNT=n (500), SEED=n
	@$(PY) -m tests.simulation.many_maintenances $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED))

fuzz: $(STAMP) ## feed decoders what no encoder makes, led by coverage: SECONDS=n for all TARGETs together, TARGET=name for one of them; corpus and findings stay in .fuzz
	@$(PY) -c 'import atheris' 2>/dev/null || $(INSTALL) -e '.[test,fuzz]' || { echo "atheris cannot be installed: it has wheels for Linux on x86-64"; exit 1; }
	@$(PY) -m tests.fuzz $(if $(SECONDS),--seconds $(SECONDS)) $(if $(TARGET),--target $(TARGET)) $(FUZZ_FLAGS)

hostile: $(STAMP) ## a hostile client that shares no code with the cluster, beside honest ones: FRAMES=n mutated frames (10000000 takes some ten minutes), ATTACKS=n times each attack
	@$(PY) -m tests.hostile $(if $(FRAMES),--frames $(FRAMES)) $(if $(ATTACKS),--attacks $(ATTACKS)) $(HOSTILE_FLAGS)

deliberate: $(STAMP) ## plant each deliberate fault and look for a seed that catches it: FAULT=name for one of them, SEEDS=n, REPORT=file for a table
	@$(PY) -m tests.simulation.deliberate $(FAULT) --jobs 2 $(if $(SEEDS),--seeds $(SEEDS)) $(if $(REPORT),--report $(REPORT))

placement-proof: $(STAMP) ## check what placement promises on every cluster of up to 16 shards in up to 4 regions, every property and every set of shards: SHARDS=n RACKED=n SPANNED=n
	@$(PY) -m tests.property.every_cluster $(if $(SHARDS),--shards $(SHARDS)) $(if $(RACKED),--racked $(RACKED)) $(if $(SPANNED),--spanned $(SPANNED))

balance: $(STAMP) ## how load follows capacity for racks of all sizes, 3 to 60 nodes and nodesets of 8 to 20, over choices alone: LOGS=n
	@$(PY) -m tests.property.balance $(if $(LOGS),--logs $(LOGS))

mutants: $(STAMP) ## change machines one place at a time and count what no unit test notices: MODULE=name, MUTANTS=n of each (0: all), REPORT=file writes the page
	@$(PY) -m tests.mutation $(MODULE) $(if $(MUTANTS),--mutants $(MUTANTS)) $(if $(REPORT),--report $(REPORT)) $(MUTANTS_FLAGS)

process: $(STAMP) browser promtool
	@$(PY) -m pytest -q -n 3 --dist loadfile -m "not slow" tests/integration

spark: $(STAMP) java ## the Spark source and sink: a cluster of processes and a Spark of two threads
	@$(PY) -m pytest -q -n 2 --dist loadfile -m "not slow" tests/spark

spark-long: $(STAMP) java ## Spark on a standalone cluster with our wheel; 2 million records read while nodes fail, timed beside the client and Parquet: RECORDS=n
	@$(PY) -m pytest -q -m slow tests/spark
	@$(PY) -m tests.spark.great_read $(if $(RECORDS),--records $(RECORDS))

chaos: $(STAMP) java ## real processes, disks and networks break for a minute while applications go on: SECONDS=n, ROUNDS=n, SEED=n, STORE=kind; KILLS=n: nothing but so many SIGKILLs; REGIONS=us,eu,ap: between regions (root)
	@$(PY) -m tests.chaos $(if $(SEED),--seed $(SEED)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(STORE),--store $(STORE)) $(if $(KILLS),--kills $(KILLS)) $(if $(REGIONS),--regions $(REGIONS))

linearizability: $(STAMP) java ## histories of real processes that are killed, stopped and cut off, judged by Porcupine (Go): SECONDS=n, ROUNDS=n, SEED=n; PLAIN=1 without strict_order
	@cd tests/linearizability/checker && $(GO) vet ./... && $(GO) test ./...
	@$(PY) -m tests.linearizability $(if $(SECONDS),--seconds $(SECONDS)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED)) $(if $(PLAIN),--plain)

soak: $(STAMP) java ## longer failure tests: pauses and outages of 30 s, the whole cluster killed again and again, second seeds of simulations
	@$(PY) -m pytest -q -m slow tests/unit tests/integration tests/simulation tests/history tests/property tests/chaos

groups: $(STAMP) ## ten members of a group as processes, killed, paused and added for five minutes; prints how long streams waited: SECONDS=n
	@$(PY) -m tests.integration.group_trouble --seconds $(or $(SECONDS),300)

steps: $(STAMP) ## writers, readers, owners, janitor, copier and nodes are killed at each of their steps, which the code declares; some 30 minutes alone: KILLED=nodes or streams
	@$(PY) -m pytest -q -m "slow or not slow" $(foreach what,$(or $(KILLED),streams nodes),tests/integration/test_$(what:s=)_steps_killed.py)

test: $(STAMP) java browser check ## everything: check, then property, simulation, conformance, ZooKeeper, process and Spark tests
	@$(PY) -m pytest -q -n 2 -m "not slow" tests/property tests/fuzz tests/simulation tests/history tests/stories
	@$(PY) -m pytest -q -n 3 --dist loadfile -m "not slow" tests/conformance tests/integration
	@$(PY) -m pytest -q -m "not slow" tests/chaos
	@$(PY) -m pytest -q -n 2 --dist loadfile -m "not slow" tests/spark

demo: $(if $(ZOOKEEPER),$(STAMP) java,$(RUNNABLE)) ## five nodes, real input, the sequencer's node killed half-way, all read back; ZOOKEEPER=1: ZooKeeper is killed too
	@$(PY) -m server.dev.demo $(if $(FILE),--file "$(FILE)") $(if $(ZOOKEEPER),--epoch-store zookeeper --stop-epoch-store) $(DEMO_FLAGS)

bench: $(STAMP) java ## fetch other log systems and measure beside them, the short way, into benchmarks/results: ENGINES=a,b WORKLOADS=a,b, BENCH_FLAGS="--sync-delay 2ms"
	$(FETCH_PEERS)
	@$(PY) -m benchmarks.ldbench.cli run --scale short $(BENCH_CHOICE)

bench-full: $(STAMP) java ## the same for hours: every size, content and durability class, five rounds
	$(FETCH_PEERS)
	@$(PY) -m benchmarks.ldbench.cli run --scale full $(BENCH_CHOICE)

storage-figures: $(STAMP) ## measure a shard of 20 GB and nodes of five that are lost: STEPS="fill open drop lose lose-two drain index", FIGURES_FLAGS="--gigabytes 2"; takes 50 GB of disk
	@$(PY) -m benchmarks.storage_figures $(STEPS) $(FIGURES_FLAGS)

AUDIT := $(VENV)/audit

audit: $(STAMP) ## ask PyPI's vulnerability service about everything that is installed: needs a network; what it does not answer about is a failure
	@test -x $(AUDIT)/bin/pip-audit || { $(PY) -m venv $(AUDIT) && $(AUDIT)/bin/pip install --quiet --disable-pip-version-check pip-audit; } || { echo "the installation of pip-audit failed; it needs a package index"; exit 1; }
	@$(AUDIT)/bin/pip-audit --strict --skip-editable --path "$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

goldens: $(STAMP) ## record the bytes of messages and of what is on disk, after a change that is meant: tests/golden
	@$(PY) -m tests.golden

docs: $(STAMP) ## render the docs that follow from declarations
	@$(PY) -m server.dev.render_docs

stories: $(STAMP) ## play the stories of docs/stories on a simulated cluster and rewrite their pages; STORY=name: one of them
	@$(PY) -m tests.stories $(STORY)

site: $(SITE) ## the documentation as pages for a browser, into build/site
	@NO_MKDOCS_2_WARNING=1 $(VENV)-site/bin/mkdocs build --strict --quiet
	@echo "build/site/index.html"

upgrade: $(STAMP) ## five nodes of an earlier version are replaced by this one under load, and go back; everything is compared: FROM=commit (default: 0.1.0), UPGRADE_FLAGS="--records 500"
	@$(PY) -m tests.upgrades $(if $(FROM),--from $(FROM)) $(UPGRADE_FLAGS)

release: $(STAMP) ## build what is published into dist, from the files of HEAD: wheel, source, Debian package, image, manifests, checksums, bill of materials; RELEASE_FLAGS=--no-image without mmdebstrap
	@$(PY) -m server.dev.release build $(RELEASE_FLAGS)

release-check: $(STAMP) ## the same twice, and compare: equal sources give equal bytes
	@$(PY) -m server.dev.release check $(RELEASE_FLAGS)

release-try: $(STAMP) java ## run what is in dist: the client alone in an environment of its own, three machines with the image's files (takes root)
	@$(PY) -m tests.packages

clean: ## remove what the targets made
	@rm -rf $(VENV) $(VENV)-site build .pytest_cache .mypy_cache .ruff_cache .hypothesis
