# Two commands do all the set-up: `make run` shows escala at work, `make test` runs the tests.
# Needed before: make and Python 3.11 or newer with venv or pip. Choose the Python with PYTHON=python3.12.

PYTHON ?= python3
VENV := .venv
VENV_HF := .venv-hf
VENV_RUN := .venv-run
# The newest release with which the optional tests were run. On Linux, PyPI's file for it brings CUDA (GBs);
# a file of the CPU build in a folder that PIP_FIND_LINKS names is preferred.
TORCH ?= torch==2.13.0

export HF_HUB_OFFLINE ?= 1
export DO_NOT_TRACK ?= 1

# uv is an optional accelerator: where it cannot be installed, or fails, plain pip does the same work slower.
# It is told what pip already knows: where extra files, the index and the certificates are.
comma := ,
empty :=
space := $(empty) $(empty)
export UV_LINK_MODE ?= copy
ifneq ($(strip $(PIP_FIND_LINKS)),)
export UV_FIND_LINKS ?= $(subst $(space),$(comma),$(strip $(PIP_FIND_LINKS)))
endif
ifneq ($(strip $(PIP_INDEX_URL)),)
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif
ifneq ($(strip $(PIP_CERT)),)
export SSL_CERT_FILE ?= $(PIP_CERT)
endif

# $(call install,environment,requirements)
define install
	@if [ -x $(1)/bin/uv ] && $(1)/bin/uv pip install --quiet --python $(1)/bin/python $(2); then :; \
	else echo "  (with plain pip)"; $(1)/bin/python -m pip install --quiet --disable-pip-version-check $(2); fi
endef

.PHONY: run test test-hf test-more test-oracles bench check env clean help
.DEFAULT_GOAL := help

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV_RUN)/.ok ## Set up with PyTorch, then run `escala demo`: bench, plan, train, verify
	@$(VENV_RUN)/bin/escala demo

test: ## Set up, then run every test that needs no optional library
	@scripts/test

test-hf: $(VENV_HF)/.ok ## Set up a second environment with PyTorch and transformers, then run the tests that need them
	@OMP_NUM_THREADS=1 $(VENV_HF)/bin/python -m pytest -n 2 --dist loadfile -m "optional and not alone and not more"
	@$(VENV_HF)/bin/python -m pytest -m "optional and alone and not more"

test-more: $(VENV_HF)/.ok ## Repeat costly claims for more seeds and cases, which no other command does
	@$(VENV_HF)/bin/python -m pytest -m more

test-oracles: $(VENV)/.oracles-ok ## Ask other tools themselves about the files that escala reads and writes for them
	@$(VENV)/bin/nox $(if $(ORACLES),-s $(ORACLES))

bench: $(VENV)/.core-ok ## Set up, then measure how fast escala itself is
	@$(VENV)/bin/python benchmarks/run.py

check: ## Lint, format, types, layers, dependencies: all must be green before a review
	@scripts/check

env: $(VENV)/.dev-ok ## Set up the environment for development only

clean: ## Delete environments, caches and build results
	rm -rf $(VENV) $(VENV_HF) $(VENV_RUN) .nox build dist .coverage htmlcov
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are newer than pyproject.toml when the environment holds what it asks for.
$(VENV)/.core-ok: pyproject.toml | $(VENV)/bin/python
	@echo "installing escala into $(VENV)"
	$(call install,$(VENV),-e .)
	@touch $@

$(VENV)/.dev-ok: pyproject.toml | $(VENV)/bin/python
	@echo "installing escala with its test and lint tools into $(VENV)"
	$(call install,$(VENV),-e '.[test$(comma)lint]')
	@touch $(VENV)/.core-ok $@

$(VENV)/.oracles-ok: $(VENV)/.dev-ok
	@echo "installing nox into $(VENV)"
	$(call install,$(VENV),-e '.[test$(comma)lint$(comma)oracles]')
	@touch $@

$(VENV_RUN)/.ok: pyproject.toml Makefile | $(VENV_RUN)/bin/python
	@echo "installing escala with $(TORCH) into $(VENV_RUN)"
	$(call install,$(VENV_RUN),'$(TORCH)' -e '.[watch]')
	@touch $@

$(VENV_HF)/.ok: pyproject.toml Makefile | $(VENV_HF)/bin/python
	@echo "installing escala with $(TORCH), transformers, peft and Flower into $(VENV_HF)"
	$(call install,$(VENV_HF),'$(TORCH)' -e '.[data$(comma)federated$(comma)hf$(comma)lora$(comma)test]')
	@touch $@

# Debian and Ubuntu ship venv without ensurepip; there the pip of $(PYTHON) puts pip into the environment.
%/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "escala needs Python 3.11 or newer and '$(PYTHON)' is not; try: make PYTHON=python3.12"; exit 2; }
	@echo "creating $*"
	@$(PYTHON) -m venv --clear $* || \
	    { $(PYTHON) -m venv --clear --without-pip $* && $(PYTHON) -m pip --python $*/bin/python install --quiet pip; }
	@$*/bin/python -m pip install -qq --disable-pip-version-check uv || echo "  (uv is not available; pip will do)"
