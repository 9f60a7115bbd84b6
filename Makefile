# Strandline's commands. Each first sees to it that the virtual environment and the jars are there.
SHELL := /bin/bash
VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.ready
# The theme's news of its own end are no warning about a page.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

.PHONY: help setup demo up docs test test-all test-spark test-duckdb nightly fast check house house-write lock bench-ingest bench-flat bench-shared bench-workloads bench-commits bench-freshness bench-large bench-soak bench-replicas bench-medallion bench-ivm clean
.DEFAULT_GOAL := help
# Tests start hundreds of processes, and without it each compiles our modules anew.
unexport PYTHONDONTWRITEBYTECODE

help: ## the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(STAMP): requirements.lock pyproject.toml infra/setup.sh jobs/run/jars.py
	@bash infra/setup.sh $(VENV)

setup: $(STAMP) ## make the virtual environment from the lock file, and fetch Delta's jars

demo: $(STAMP) ## the pattern catalogue's examples, end to end on the local log
	@$(BIN)/python -m strandline.jobs.cli.demo

up: $(STAMP) ## Dagster and the HTTP server on loopback, over the same lake; make up PORT=3001 SERVE_PORT=8089
	@$(BIN)/python -m strandline.orchestration.up $(if $(PORT),--port $(PORT)) $(if $(SERVE_PORT),--serve-port $(SERVE_PORT))

check: $(STAMP) ## formatting, lint, strict types, the floors of the house, the site of docs/
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m infra.house check
	$(MKDOCS)

docs: $(STAMP) ## the site of docs/, in build/site
	$(MKDOCS)

house: $(STAMP) ## the rooms, what they import of each other, the largest of everything; fails where it is not as planned
	@$(BIN)/python -m infra.house

house-write: $(STAMP) ## write the table of rooms in docs/architecture.md
	@$(BIN)/python -m infra.house write

fast: check ## lint, types, and the unit tests of the language and the engine: about two minutes
	$(BIN)/python -m pytest -q -m "not kill" tests/unit/sql tests/unit/query tests/unit/catalog tests/unit/ivm \
	  tests/unit/model tests/unit/serve tests/unit/state_store/delta

test: export STRANDLINE_TURN ?= $(shell git rev-list --count HEAD 2>/dev/null || echo 0)
test: check ## what must pass: all tests but of the longest, of which each commit runs another share
	$(BIN)/python -m strandline.jobs.run.jars kafka dynamodb s3
	$(BIN)/python -m infra.dbt_environment
	@$(MAKE) --no-print-directory --output-sync=target --jobs=2 test-spark test-duckdb

test-all: export STRANDLINE_WHOLE := 1
test-all: test ## all tests; an hour

# Side by side: one keeps a JVM busy, the other a core. Those that need none go where both then end together.
test-spark: $(STAMP)
	@VENV=$(VENV) bash infra/tests.sh spark tests/spark tests/golden tests/live tests/properties tests/nexmark \
	  tests/outside tests/conformance tests/unit/cli tests/unit/orchestration

test-duckdb: $(STAMP)
	@VENV=$(VENV) bash infra/tests.sh duckdb tests/unit --ignore=tests/unit/cli --ignore=tests/unit/orchestration

nightly: export STRANDLINE_SEED := anew
nightly: $(STAMP) ## the property tests at length: 20,000 views in memory, 2,000 on Delta, 500 also on Spark with real kills, 20,000 by every path; 2,000 histories of foreign Delta tables and 667 of others, 1,000 of change streams; rules and store; Nexmark; a cluster; many epochs; power cuts; killed operations; flipped bits
	STRANDLINE_EXAMPLES=20000 $(BIN)/python -m pytest tests/properties/test_views.py
	STRANDLINE_DELTA_EXAMPLES=2000 $(BIN)/python -m pytest tests/properties/test_views_on_delta.py
	STRANDLINE_SPARK_EXAMPLES=500 STRANDLINE_KILLS=1 $(BIN)/python -m pytest tests/properties/test_views_on_spark.py
	STRANDLINE_FOREIGN_EXAMPLES=2000 $(BIN)/python -m pytest tests/properties/test_delta_sources.py tests/properties/test_foreign_sources.py
	STRANDLINE_CHANGE_EXAMPLES=1000 $(BIN)/python -m pytest tests/properties/test_change_streams.py
	STRANDLINE_PATHS_EXAMPLES=20000 $(BIN)/python -m pytest tests/properties/paths/test_paths.py
	STRANDLINE_PATHS_SPARK_EXAMPLES=200 $(BIN)/python -m pytest tests/properties/paths/test_paths_on_spark.py
	$(BIN)/python -m strandline.jobs.run.jars jdbc
	STRANDLINE_NIGHTLY=1 $(BIN)/python -m pytest tests/unit tests/nexmark tests/outside tests/live/test_cluster.py tests/live/test_kill.py tests/spark/test_delta_sources.py \
	  tests/properties/test_names.py tests/properties/test_plain_pulls.py tests/properties/test_plain_tables.py \
	  tests/properties/test_pushed.py tests/properties/test_trimmed_logs.py
	$(BIN)/python -m tests.campaigns.engine_equality --kinds 3 --rows 60 --values 100000
	$(BIN)/python -m tests.campaigns.many_epochs --epochs 2000
	$(BIN)/python -m tests.campaigns.power_cuts
	$(BIN)/python -m tests.campaigns.operation_kills --kills 300
	$(BIN)/python -m tests.campaigns.bitflips --seed 1 --flips 10000
	$(BIN)/python -m tests.campaigns.server --seed 1 --requests 20000

bench-ingest: $(STAMP) ## events per second from a real broker into an event log
	$(BIN)/python -m strandline.jobs.run.jars kafka
	$(BIN)/python -m benchmarks.ingest

bench-flat: $(STAMP) ## what 1,000 changes cost after 1 M and after 20 M events
	$(BIN)/python -m benchmarks.flat_cost

bench-shared: $(STAMP) ## ten views over one join, shared, against one
	$(BIN)/python -m benchmarks.shared_views

bench-workloads: $(STAMP) ## events a second through an aggregate, and through MAX over a join with retractions, by each engine
	$(BIN)/python -m benchmarks.workloads

bench-commits: $(STAMP) ## what an epoch costs to store, against the ways of Delta's own writer
	$(BIN)/python -m benchmarks.commit_ways

bench-freshness: $(STAMP) ## seconds from an event's production until a pull shows it, by a real broker, with a chart in build/freshness
	$(BIN)/python -m strandline.jobs.run.jars kafka
	$(BIN)/python -m benchmarks.freshness --out build/freshness

bench-large: $(STAMP) ## a hot key, ten million keys, a lake that is larger than memory: time, memory, right answers
	$(BIN)/python -m benchmarks.large_state

bench-soak: $(STAMP) ## ten thousand epochs through five views in one process: does age cost anything?
	$(BIN)/python -m benchmarks.soak

bench-replicas: $(STAMP) ## a replica from nothing, and reads per second, by backend
	@$(BIN)/python -m benchmarks.replicas

bench-medallion: $(STAMP) ## an hour of Feldera's medallion demo through its 15 views; DEMO=its .sql file in a checkout
	$(BIN)/python -m benchmarks.medallion $(DEMO)

bench-ivm: $(STAMP) ## TPC-DI's warehouse as 45 views, in batches; OPENIVM=a checkout of ila/openivm
	$(BIN)/python -m benchmarks.ivm_bench $(OPENIVM)

lock: ## renew the lock files (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url \
	  --no-emit-find-links --extra dev pyproject.toml -q -o requirements.lock --custom-compile-command "make lock"
	cd infra/dbt-strandline && uv pip compile --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url \
	  --no-emit-find-links requirements.in -q -o requirements.lock --custom-compile-command "make lock"

clean: ## remove the virtual environment and the demo's lake
	rm -rf $(VENV) lake .dagster
