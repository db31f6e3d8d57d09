# What a user and CI run. Needs Python 3.11 or newer with venv, and a package registry; no GPU, no
# system libopus, no compiler.
#
#   make demo   install into .venv, start the server, speak a reply word by word, write hello.opus
#   make test   everything that guards main
#   make check  the same without the tests: style, types, import contracts
#   make sdks   install other services' SDKs, which the tests run, into environments of their own

SHELL := /bin/bash
VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# One line for each package pip fetches, so that the first minute is not silent.
SHOW := sed -nE 's/^ *(Collecting|Processing) ([^ ]+).*/    \2/p'
PIP := set -o pipefail; $(BIN)/python -m pip --disable-pip-version-check install

.PHONY: demo test check docs install install-dev sdks js clean

demo: $(VENV)/.rtts
	@$(BIN)/rtts demo

test: check sdks js
	@$(BIN)/python -m pytest

# What the tests of the JavaScript client run; without node or a registry they are skipped, too.
js: clients/js/node_modules/.package-lock.json

clients/js/node_modules/.package-lock.json: clients/js/package-lock.json
	@echo "Installing what the tests of the JavaScript client need into clients/js/node_modules"
	@cd clients/js && npm ci --no-fund --no-audit --loglevel=error && touch node_modules/.package-lock.json \
		|| echo "npm could not install it"

# Without node, or without a registry, the tests that need them are skipped; with CI=true they fail.
sdks: $(VENV)/.rtts-dev
	@$(BIN)/python tests/e2e/sdk/environments.py || echo "some SDK environments could not be made"

check: $(VENV)/.rtts-dev
	@$(BIN)/ruff check --quiet . && echo "ruff check: clean"
	@$(BIN)/ruff format --quiet --check . && echo "ruff format: clean"
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

# Rewrite the tables of docs/operations.md from the code.
docs: $(VENV)/.rtts-dev
	@$(BIN)/python docs/tables.py

install: $(VENV)/.rtts
install-dev: $(VENV)/.rtts-dev

$(VENV)/.rtts: pyproject.toml
	@test -n "$(PYTHON)" || { echo "rtts needs Python 3.11 or newer; none was found (set PYTHON=)"; exit 1; }
	@echo "Installing rtts into $(VENV) ($$($(PYTHON) --version), about 60 MB to fetch)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --quiet --upgrade 'pip>=25.1' || { echo "pip reaches no package registry"; exit 1; }
	@$(PIP) --editable . | $(SHOW)
	@touch $@

# The CPU build, for the tests of the Qwen engine: pinned, and before everything else, so that nothing
# pulls the newest one with its gigabytes of CUDA. Where this pin is a CUDA build, name PyTorch's
# index of CPU builds: make test TORCH='torch==2.13.0 --index-url ...'
TORCH ?= torch==2.13.0

$(VENV)/.rtts-dev: $(VENV)/.rtts
	@echo "Installing what the tests need into $(VENV)"
	@$(PIP) $(TORCH) | $(SHOW)
	@$(PIP) --editable '.[kokoro,otel,report]' --group dev | $(SHOW)
	@touch $@

clean:
	rm -rf $(VENV) .venv-sdk-* tests/e2e/sdk/node_modules clients/js/node_modules hello.opus
