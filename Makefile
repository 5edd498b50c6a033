# Set-up and the everyday commands; `make help` lists them. Every target first makes sure that .venv is complete.
#
#   PYTHON=...   interpreter that creates .venv (default: the first suitable one of the candidates below)
#   ARGS=...     passed on, e.g. make train ARGS="experiment=smoke", make test ARGS="tests/sim -n 2"
#   PIP_ARGS=... passed to every pip call, e.g. an index that has another build of PyTorch

# All paths are relative and every tool runs as `python -m`, so that the checkout may lie in a path with spaces.
BIN := .venv/bin/python
STAMP := .venv/.complete
CANDIDATES := $(if $(PYTHON),'$(PYTHON)',python3.11 python3 python3.12 python3.13)
SUITABLE := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PIP := $(BIN) -m pip install -qq --disable-pip-version-check $(PIP_ARGS) -c constraints.txt

.PHONY: help setup train test test-slow lint format bench leaderboard characterize docs clean clean-all
.DEFAULT_GOAL := help

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' Makefile

setup: $(STAMP)  ## only create .venv and install into it

train: scripts/train.py $(STAMP)  ## warm-up, reinforcement learning and the final table: the main job
	@$(BIN) scripts/train.py $(ARGS)

test: $(STAMP)  ## all tests but the slow ones
	$(BIN) -m pytest $(ARGS)

test-slow: $(STAMP)  ## the slow tests
	$(BIN) -m pytest -m slow $(ARGS)

lint: $(STAMP)  ## style, format and types
	$(BIN) -m ruff check
	$(BIN) -m ruff format --check
	$(BIN) -m mypy

format: $(STAMP)  ## bring the source into the style that lint checks
	$(BIN) -m ruff check --fix-only
	$(BIN) -m ruff format

bench: scripts/benchmark.py $(STAMP)  ## speed of simulator, environments and training
	@$(BIN) scripts/benchmark.py $(ARGS)

leaderboard: scripts/leaderboard.py $(STAMP)  ## compare all schedulers on the frozen scenarios
	@$(BIN) scripts/leaderboard.py $(ARGS)

characterize: scripts/characterize.py $(STAMP)  ## where the training time of each job type goes
	@$(BIN) scripts/characterize.py $(ARGS)

docs: $(STAMP)  ## HTML documentation in docs/_build/html
	$(BIN) -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

clean:  ## remove caches and built files, keep .venv and runs
	rm -rf docs/_build docs/api build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find dl2env agents scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +

clean-all: clean  ## also remove .venv
	rm -rf .venv

# Reached only when a script is missing: it has no prerequisites, so an existing script counts as up to date.
scripts/%.py:
	@echo "$@ is not part of this version of dl2env; it comes in a later one (see CHANGELOG.md)" >&2; exit 2

$(STAMP): pyproject.toml constraints.txt
	@set -e; \
	if ! $(BIN) -c "import pip; $(SUITABLE)" >/dev/null 2>&1; then \
	  python=; \
	  for candidate in $(CANDIDATES); do \
	    if "$$candidate" -c "$(SUITABLE)" >/dev/null 2>&1; then python=$$candidate; break; fi; \
	  done; \
	  if [ -z "$$python" ]; then \
	    echo "dl2env needs Python 3.11, 3.12 or 3.13 with its venv module; looked for:" $(CANDIDATES)". Install it" \
	      "(on Debian: python3.11 and python3.11-venv) or name one: make PYTHON=/path/to/python3.11" >&2; \
	    exit 2; \
	  fi; \
	  echo "dl2env: creating .venv with $$("$$python" --version)"; \
	  "$$python" -m venv --clear .venv; \
	fi; \
	echo "dl2env: installing about 1.6 GB into .venv: once, usually 2 to 5 minutes, longer on a slow network"; \
	{ $(PIP) pip && echo "dl2env: 1/2 PyTorch" && $(PIP) torch \
	  && echo "dl2env: 2/2 everything else, and dl2env itself from this folder" \
	  && $(PIP) --build-constraint constraints.txt -e ".[train]" --group dev; } \
	  || { echo "dl2env: set-up failed, see above; run make again when that is cured" >&2; exit 1; }; \
	touch $(STAMP); \
	echo "dl2env: set-up complete"
