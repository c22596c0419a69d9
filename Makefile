# Every target works on a fresh machine: the virtual environment is made when it is missing.
.DEFAULT_GOAL := help
.PHONY: help run setup test lint format types unit bench docs clean

# With another Python (make test PYTHON=/usr/bin/python3) the environment is another one, too.
VENV := .venv$(if $(PYTHON),-$(shell $(PYTHON) -c 'import platform; print(platform.python_version())'))
export PYTHON
ifdef PYTHON
# Its compiler differs in the branches that coverage counts, so it neither shares compiled files nor
# is measured.
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache
else
COVERAGE := --cov --cov-report=term
endif
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TESTS := $(VENV)/.tests

help:  ## show this help
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

$(READY): requirements/base.txt requirements/run.txt pyproject.toml scripts/setup
	@scripts/setup $(VENV)
	@touch $@

$(TESTS): $(READY) requirements/dev.txt requirements/no-deps.txt requirements/npm.txt requirements/reference.txt testkit/pyproject.toml scripts/setup-tests
	@scripts/setup-tests $(VENV)
	@touch $@

setup: $(READY)  ## prepare .venv, so that .venv/bin/clawkit works

run: $(READY)  ## set up and open the chat; without a terminal, show the tools in force
	@echo "To have clawkit on your PATH: source $(VENV)/bin/activate"
	@if [ -t 0 ]; then $(BIN)/clawkit up; else $(BIN)/clawkit tools list; fi

test: $(TESTS)  ## everything that must pass: format, lint, types, tests, coverage
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory -j2 types unit

types: $(TESTS)  ## types only
	$(BIN)/mypy

unit: $(TESTS)  ## tests, and the coverage of what decides about safety
	@failed=0; \
	$(BIN)/python scripts/run_tests.py --part=traced $(COVERAGE) || failed=1; \
	$(BIN)/python scripts/run_tests.py --part=untraced || failed=1; \
	exit $$failed

lint: $(TESTS)  ## format check, lint and types only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(TESTS)  ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(TESTS)  ## measure: start-up, call path, policy, assembly, file tools, races, commands, verdicts, proof
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/bench.txt
	@npm install --silent --no-audit --no-fund --ignore-scripts --prefix $(VENV)/bench-npm $$(cat requirements/bench-npm.txt)
	$(BIN)/python -m bench
	CLAWKIT_TEST_FULL=1 $(BIN)/python -m pytest -m long -n auto --dist loadgroup

docs: $(TESTS)  ## write the generated parts of docs/ anew
	$(BIN)/python scripts/gendocs.py

clean:  ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage build dist
