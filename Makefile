# Strandline's commands. Each first sees to it that the virtual environment and the jars are there.
SHELL := /bin/bash
VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: help setup demo up test check lock bench-ingest clean
.DEFAULT_GOAL := help

help: ## the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(STAMP): requirements.lock pyproject.toml infra/setup.sh infra/jars.py
	@bash infra/setup.sh $(VENV)

setup: $(STAMP) ## make the virtual environment from the lock file, and fetch Delta's jars

demo: $(STAMP) ## the pattern catalogue's examples, end to end on the local log
	@$(BIN)/python -m jobs.demo

up: $(STAMP) ## Dagster's web server and daemon on loopback, over the same lake
	@$(BIN)/python -m orchestration.up

check: $(STAMP) ## formatting, lint with the layer rule, strict types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: check ## everything that must pass
	$(BIN)/python infra/jars.py kafka
	$(BIN)/python -m pytest

bench-ingest: $(STAMP) ## events per second from a real broker into an event log
	$(BIN)/python infra/jars.py kafka
	$(BIN)/python -m benchmarks.ingest

lock: ## renew requirements.lock (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url \
	  --no-emit-find-links --extra dev pyproject.toml -q -o requirements.lock --custom-compile-command "make lock"

clean: ## remove the virtual environment and the demo's lake
	rm -rf $(VENV) lake .dagster
