# Every target works on a fresh machine: the virtual environment is made when it is missing.
.DEFAULT_GOAL := help
.PHONY: help run setup test lint format types unit bench docs clean

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

help:  ## show this help
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

$(READY): requirements/base.txt requirements/dev.txt requirements/npm.txt pyproject.toml scripts/setup
	@scripts/setup $(VENV)
	@touch $@

setup: $(READY)  ## prepare .venv, so that .venv/bin/clawkit works

run: $(READY)  ## set up and open the chat; without a terminal, show the tools in force
	@echo "To have clawkit on your PATH: source $(VENV)/bin/activate"
	@if [ -t 0 ]; then $(BIN)/clawkit up; else $(BIN)/clawkit tools list; fi

test: $(READY)  ## everything that must pass: format, lint, types, tests, coverage
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory -j2 types unit

types: $(READY)  ## types only
	$(BIN)/mypy

unit: $(READY)  ## tests and coverage only
	$(BIN)/python -m pytest -n auto --dist loadgroup --cov --cov-report=term:skip-covered
	$(BIN)/coverage report --include='src/clawkit/core/*,src/clawkit/policy/*,src/clawkit/approvals/*,src/clawkit/guard/*,src/clawkit/fs/inside.py' --fail-under=100

lint: $(READY)  ## format check, lint and types only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)  ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## measure: start-up, call path, policy, assembly, file tools, races, commands, verdicts, proof
	$(BIN)/python -m bench

docs: $(READY)  ## write the generated parts of docs/ anew
	$(BIN)/python scripts/gendocs.py

clean:  ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage build dist
