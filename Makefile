PYTHON ?= python3
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST)

.venv/core: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/vectors: .venv/core
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[vectors]'
	touch $@

.venv/test: .venv/core
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

demo: .venv/core ## show the main job on a throw-away workspace, in Chinese and English
	@sh docs/demo.sh

check: .venv/test ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check ## everything that must be green: check and all tests
	$(BIN)/pytest -n auto

torture: .venv/test ## the long run of docs/reliability.md; TORTURE_APPENDS, TORTURE_KILLS, TORTURE_SECONDS change it
	TORTURE=long $(BIN)/pytest tests/torture

bench: .venv/vectors ## speed and memory, as ratios measured in one run; with matplotlib a picture, too
	$(BIN)/python benchmarks/bench.py --plot benchmarks/results/bench.png

eval: .venv/vectors ## how well recall finds what was asked for, on the sets of fixtures/eval
	$(BIN)/python evaluation/evaluate.py

docs: .venv/core ## write docs/commands.md anew
	$(BIN)/python docs/commands.py > docs/commands.md

.PHONY: help demo check test torture bench eval docs
