# Everything a stranger needs: `make demo` and `make test`. `make help` lists the rest.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip --disable-pip-version-check -q
TORCH  := torch==2.13.0

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types contracts install bench screenshots docs clean preflight

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

preflight:
	@command -v git >/dev/null 2>&1 || { echo "bottletop needs git: install the package git"; exit 1; }
	@command -v $(PYTHON) >/dev/null 2>&1 || { echo "bottletop needs Python 3.11 or newer: $(PYTHON) was not found"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "bottletop needs Python 3.11 or newer: $(PYTHON) is older (set PYTHON=...)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "bottletop needs Python's venv: install the package python3-venv"; exit 1; }

$(VENV)/.installed: pyproject.toml constraints.txt | preflight
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed requirements-dev.txt
	@command -v cc >/dev/null 2>&1 || { echo "the tests need a C compiler: install the package gcc"; exit 1; }
	@$(PIP) install -c constraints.txt -r requirements-dev.txt
	@touch $@

$(VENV)/.torch: $(VENV)/.dev
	@echo "installing $(TORCH) for the tests of the probe in a torch loop (about 200 MB from a CPU index, more elsewhere; WITHOUT_TORCH=1 leaves it out)"
	@$(PIP) install $(TORCH)
	@touch $@

install: $(VENV)/.installed ## create .venv and install bottletop into it

demo: install ## see it work: a real slow process, a simulated GPU, a verdict
	@$(BIN)/bottletop demo cpu-starved --for 30s

ifdef WITHOUT_TORCH
TORCH_MARK := -m "not torch"
test: $(VENV)/.dev ## install what the tests need and run them all
	@echo "WITHOUT_TORCH is set: the tests marked torch are left out"
else
test: $(VENV)/.torch
endif
	@$(BIN)/python -m pytest -q -n auto --dist loadfile $(TORCH_MARK)

lint: $(VENV)/.dev ## ruff, and its formatter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.dev ## mypy --strict
	@$(BIN)/mypy

contracts: $(VENV)/.dev ## who may import whom
	@$(BIN)/lint-imports

check: lint types contracts test ## all that CI runs

bench: $(VENV)/.dev ## measure against the budgets (on a quiet machine, about five minutes)
	@$(PIP) install nvitop
	@$(BIN)/python bench/whole.py
	@PYTHONPATH=src:tests $(BIN)/python -m rulelab.cost starved
	@$(BIN)/python bench/record_bench.py
	@$(BIN)/python bench/probe_bench.py

screenshots: $(VENV)/.dev ## make the pictures of the README again, from recordings
	@$(BIN)/python screenshots/make.py

docs: $(VENV)/.dev ## write docs/rules.md from the rules and the signals in docs/collectors.md
	@$(BIN)/python -m bottletop.rules.docs > docs/rules.md
	@$(BIN)/python -m bottletop.collectors.docs docs/collectors.md

clean: ## remove what was built
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
