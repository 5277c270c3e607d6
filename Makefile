# Everything a user or CI calls. Each target sets up what it needs: see `make help`.
.DEFAULT_GOAL := help
.PHONY: help java setup jars store-jars dist demo ui playground test test-all test-fast ui-test lint bench bench-all soak fuzz audit lock clean
SHELL := /bin/bash

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
export DAGSTER_HOME ?= $(CURDIR)
# What is imported is compiled when it first is, and kept: pip would compile all that there is, one file after the other.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile
# With nothing downloaded before, uv takes 25 s, pip 90. Of what pip is told uv knows the index alone: where it cannot, pip does it.
PINNED := --no-deps --require-hashes

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 12

java:
	@v=$$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -nE '1s/.*"([0-9]+).*/\1/p'); \
	if [ "$${v:-0}" -lt 17 ]; then \
	  echo "Java 17 or later is needed (found: $${v:-none}): install it, on Debian with 'apt-get install openjdk-17-jre-headless', or point JAVA_HOME at it." >&2; \
	  exit 1; fi

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -m venv $(VENV) || { echo "No virtual environment could be made with $(PYTHON): on Debian 'apt-get install python3.11-venv', or name another interpreter with 'make PYTHON=...'." >&2; exit 1; }
	@sed -n '/^uv==/,/[^\\]$$/p' requirements.lock > $(VENV)/uv.txt
	@index=$$($(BIN)/pip config list | sed -nE "s/.*\.index-url='(.*)'/\1/p" | tail -n 1); \
	$(PIP) $(PINNED) -r $(VENV)/uv.txt && \
	  $(BIN)/uv pip install --quiet --python $(BIN)/python $${index:+--index-url "$$index"} $(PINNED) -r requirements.lock \
	  || $(PIP) $(PINNED) -r requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

setup: java $(VENV)/.ready jars  ## virtual environment and jars, nothing else

jars: java $(VENV)/.ready
	@$(BIN)/python -m cdc_assets.operations.class_archive

store-jars: jars
	@$(BIN)/python -m cdc_assets.stores s3 gs abfss

NATIVE := cdc_assets/spark/native
dist: java $(VENV)/.ready  ## build dist/cdc_assets-*.whl: the jars compiled, so that who installs it needs Python and a JRE alone
	@rm -rf build dist $(NATIVE)/*.jar
	@$(BIN)/python -m cdc_assets.stores --copy-native $(NATIVE)
	@$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@rm -rf build $(NATIVE)/*.jar
	@ls dist/*.whl

demo: setup  ## run the pipeline over the recorded snapshots in data/, and print a summary
	@$(BIN)/python -m cdc_assets run

ui: setup  ## serve Dagster on 127.0.0.1:3000 (schedule, retries and all), with the demo's runs, checks and metadata
	@$(BIN)/python -m cdc_assets ui --port $${PORT:-3000}

playground: setup  ## a shop on MariaDB, Debezium, a broker and Dagster's UI, until Ctrl-C; PLAYGROUND=folder keeps the files
	@$(BIN)/python -m cdc_assets_tests.playground $${PLAYGROUND:+--keep "$$PLAYGROUND"}

lint: $(VENV)/.ready  ## style, docstrings, layers, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/mypy

test: java $(VENV)/.ready  ## lint, the laws on recorded streams, all protocols, cases, Kafka, S3, the job (an hour on two cores)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync store-jars lint
	$(BIN)/pytest -q -n 3 -m "not extended and not soak"  # for two cores: the third has the tests that wait for processes

test-all: store-jars  ## what `make test` leaves out: clusters, HDFS, GCS, Azure, browser, real dumps, all recorded streams
	$(BIN)/pytest -q -n 3 -m "extended and not soak"

test-fast: setup  ## every stage, protocol, gate, schema action and type by small inputs (90 seconds)
	$(BIN)/pytest -q -m "fast and not soak"

ui-test: setup  ## look at the web interface in a real Chromium, and make docs/asset-graph.png anew
	$(BIN)/pytest -q cdc_assets_tests/ui/pages.py

soak: setup  ## kill the pipeline and the broker at random moments; generated schema changes, all recorded DDL; a live source (hours)
	$(BIN)/pytest -q -n 2 -m soak
	$(BIN)/python -m cdc_assets_tests.soak
	$(BIN)/python -m cdc_assets_tests.soak_broker
	$(BIN)/python -m cdc_assets_tests.live --minutes 60
	$(BIN)/python -m cdc_assets_tests.live --minutes 60 --reader canal
	EVOLUTION_ALL=1 $(BIN)/pytest -q -n 2 cdc_assets_tests/laws/test_evolution_recorded.py

fuzz: setup  ## run the pipeline over bent records of every protocol; RECORDS=1000000 for the whole of it, hours
	$(BIN)/python -m cdc_assets_tests.fuzz --records $${RECORDS:-20000} $${SEED:+--seed $$SEED}

bench: setup  ## measure a short form of everything beside its peers, some minutes; results go to benchmarks/results/
	$(BIN)/python -m benchmarks.bench --form short

bench-all: setup  ## the whole of it, hours
	$(BIN)/python -m benchmarks.bench --form all

lock: $(VENV)/.ready  ## pin the dependencies again, with hashes and without addresses
	$(BIN)/uv pip compile --quiet --universal --no-strip-extras --python-version 3.11 --generate-hashes --no-header \
	  --no-emit-index-url --no-emit-find-links --no-annotate --extra dev pyproject.toml -o requirements.lock

clean:  ## remove what runs leave behind; the virtual environment and the jar cache stay
	rm -rf data/lakehouse data/.cdc_state .dagster spark-warehouse
