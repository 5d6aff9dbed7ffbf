# All that one can do here. `make` alone lists it. Needs Python 3.11 or newer, git and make; nothing else.
# Each target sets up what it needs, says what it is about to download, and installs nothing twice.

export PYTHON
SETUP = python=$$(sh .ci/python.sh) && "$$python" .ci/environment.py
BIN = .venv/bin
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test docs docs-serve bench fleet-bench test-oldest test-trackers test-fleet test-frameworks lint format golden clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## train a small GPT on two ranks, break it, recover it twice, and judge what may be concluded
	@$(SETUP) .venv mlflow,torch,read constraints.txt
	$(BIN)/lineage demo $(DEMO_ARGS)

test: ## run the tests (browser tests need Chromium and are skipped without it); PYTEST_ARGS="-k name" chooses
	@$(SETUP) .venv dev constraints.txt
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

docs: ## build the documentation site into site/, strictly: a dead link or a missing page ends it
	@$(SETUP) .venv docs constraints.txt
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open site/index.html; no server is needed"

docs-serve: ## show the documentation site at http://127.0.0.1:8000, and build it again whenever a page is changed
	@$(SETUP) .venv docs constraints.txt
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --livereload --watch schemas --watch lineage --watch .ci/site

bench: ## measure what the layer costs a training thread, with trackers healthy, slow and dead
	@$(SETUP) .venv dev constraints.txt
	$(BIN)/python -m benchmarks

fleet-bench: ## find faults in the ledger of a fleet (says first that it needs about 11 GiB of disk; FLEET_ARGS="--ranks 64" for less)
	@$(SETUP) .venv dev constraints.txt
	$(BIN)/python -m benchmarks.fleet $(FLEET_ARGS)

test-oldest: ## run the tests on the oldest supported torch, wandb, mlflow and pydantic, in .venv-oldest
	@$(SETUP) .venv-oldest dev constraints-oldest.txt
	.venv-oldest/bin/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-trackers: ## run the adapters' contract on the oldest to newest wandb and mlflow, each in an environment under /tmp (about 1 GB)
	@$(SETUP) .venv dev constraints.txt
	$(BIN)/python -m tests.matrix $(TRACKERS_ARGS)

test-fleet: ## check that DuckDB and Spark answer the fleet's queries alike, in .venv-fleet (needs Java; about 600 MB)
	@$(SETUP) .venv-fleet dev,fleet constraints.txt
	.venv-fleet/bin/python -m pytest tests/fleet $(PYTEST_ARGS)

test-frameworks: ## fetch the sources of the frameworks (about 250 MB, unpacked only) and check the catalogue's keys against them
	@$(SETUP) .venv dev constraints.txt
	$(BIN)/python .ci/frameworks.py

lint: ## check style, formatting, types and the one-way imports
	@$(SETUP) .venv dev constraints.txt
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: ## rewrite the sources in the house's format
	@$(SETUP) .venv dev constraints.txt
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

golden: ## write the golden files of the present record version (never those of a released one)
	@$(SETUP) .venv dev constraints.txt
	$(BIN)/python -m tests.schemas.make_golden

clean: ## remove environments, caches and what the demo made
	rm -rf .venv .venv-oldest .venv-fleet build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	rm -rf .hypothesis lineage-demo site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
