# Everything a person, CI or a coding agent runs in this repository. `make` alone lists the targets.

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Programs for tests alone, in the versions of tests/npm/package-lock.json: the MCP inspector, which takes --header and
# runs on Node 20, the real Claude Code, a GitHub that nobody here wrote, and axe-core.
NPM := $(VENV)/npm/.installed
# What GitHub publishes of its API, cut down to what the tests hold requests and answers against.
GITHUB := $(VENV)/github/.installed
# The newest Python that will do; choose another with `make setup PYTHON=python3.12`.
FIND_PYTHON = for p in python3.14 python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done
ifndef PYTHON
PYTHON := $(shell $(FIND_PYTHON))
endif
# Tests mostly wait for git, tmux and agents, so one more than there are cores run side by side; many more would
# disturb those that wait with a bound.
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((n + 1)))
ARGS ?=

# npm trusts what the system trusts, as behind a proxy with a certificate of its own.
SYSTEM_CERTIFICATES := $(wildcard /etc/ssl/certs/ca-certificates.crt)
ifdef SYSTEM_CERTIFICATES
export NODE_EXTRA_CA_CERTS ?= $(SYSTEM_CERTIFICATES)
endif

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# The tests use the system's Chromium.
export PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD := 1

.PHONY: help setup system lock check test chaos demo bench docs screenshots clean

help:
	@echo "make setup   create .venv and install what is missing"
	@echo "make lock    take newer versions of all packages into requirements.lock and tests/npm"
	@echo "make check   formatting, lint, types, layers, generated docs"
	@echo "make test    the whole test suite (ARGS=... goes to pytest)"
	@echo "make chaos   20 agents exchange 500 messages while everything is killed 200 times; takes minutes"
	@echo "             ARGS=work: random work of agents against every operation, and is any of it lost?"
	@echo "make demo    agents work, review, rework and merge; needs no key, account or configuration"
	@echo "make bench   the benchmarks"
	@echo "make docs    write docs/reference again from the code"
	@echo "make screenshots  take the pictures in docs/images again"
	@echo "make clean   remove .venv and caches"

setup: system $(INSTALLED) $(NPM) $(GITHUB)
	@echo "ready: . $(BIN)/activate"

# System packages are installed only when one is missing, and only by root; anybody else is told the command.
# npm and the browser are for tests alone, so nobody else is asked for them.
system:
	@missing=; \
	command -v git >/dev/null || missing="$$missing git"; \
	command -v tmux >/dev/null || missing="$$missing tmux"; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		command -v npm >/dev/null || missing="$$missing nodejs npm"; \
		command -v chromium >/dev/null || missing="$$missing chromium"; \
		command -v strace >/dev/null || missing="$$missing strace"; \
		[ -e /usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf ] || missing="$$missing fonts-dejavu-core"; \
	elif ! command -v chromium >/dev/null; then \
		echo "chromium is missing: the tests of the dashboard need it" >&2; \
	fi; \
	if [ -z "$(PYTHON)" ]; then missing="$$missing python3 python3-venv"; \
	elif [ ! -x $(BIN)/python ] && ! $(PYTHON) -c 'import ensurepip' 2>/dev/null && ! $(PYTHON) -m virtualenv --version >/dev/null 2>&1; then \
		missing="$$missing $$(basename $(PYTHON))-venv"; \
	fi; \
	[ -n "$$missing" ] || exit 0; \
	if [ "$$(uname)" = Darwin ]; then \
		echo "missing:$$missing; install with: brew install$$(echo "$$missing" | sed 's/ python3[^ ]*-venv//')" >&2; exit 1; \
	elif ! command -v apt-get >/dev/null; then \
		echo "missing:$$missing; install them with your system's package manager" >&2; exit 1; \
	elif [ "$$(id -u)" != 0 ]; then \
		echo "missing:$$missing; install with: sudo apt-get install -y --no-install-recommends$$missing" >&2; exit 1; \
	fi; \
	echo "installing$$missing"; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing

# Python is looked for again, in case `system` has only now installed it.
$(INSTALLED): pyproject.toml requirements.lock | system
	@python="$(PYTHON)"; [ -n "$$python" ] || python=$$($(FIND_PYTHON)); \
	if [ -z "$$python" ]; then echo "Python 3.11 or newer is needed: make setup PYTHON=..." >&2; exit 1; fi; \
	set -e; \
	$(BIN)/python -c '' 2>/dev/null || rm -rf $(VENV); \
	if [ ! -d $(VENV) ]; then \
		echo "creating $(VENV) with $$($$python --version)"; \
		$$python -m venv $(VENV) 2>/dev/null || { rm -rf $(VENV); $$python -m virtualenv -q $(VENV); }; \
	fi; \
	echo "installing the project and its tools"; \
	$(BIN)/python -m pip install -q --require-hashes -r requirements.lock; \
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation --editable .; \
	touch $@

# Without npm, and without CI, the tests that need these are skipped.
define NPM_CI
@command -v npm >/dev/null || { echo "npm is missing: $(1) need it" >&2; exit 0; }; \
echo "installing what $(1) need"; \
mkdir -p $(2) && cp $(3)/package.json $(3)/package-lock.json $(3)/.npmrc $(2) && \
if npm ci --silent --no-audit --no-fund --prefix $(2)
endef

$(NPM): tests/npm/package-lock.json | $(INSTALLED)
	$(call NPM_CI,the tests with other programs,$(VENV)/npm,tests/npm); \
	then touch $@; else echo "npm has failed, and the tests with other programs will fail" >&2; fi

$(GITHUB): tests/npm/github/package-lock.json | $(INSTALLED) $(NPM)
	$(call NPM_CI,the tests of pull requests,$(VENV)/github/npm,tests/npm/github) \
	&& $(BIN)/python -m tests.fakes.github_schemas $(VENV)/github/npm/node_modules; \
	then rm -rf $(VENV)/github/npm $(VENV)/github/queries; touch $@; \
	else echo "npm has failed, and the tests of pull requests will fail in CI" >&2; fi

# New versions of everything, within what pyproject.toml and tests/npm/*/package.json allow.
lock: $(INSTALLED)
	$(BIN)/python -m venv $(VENV)/uv
	$(VENV)/uv/bin/python -m pip install -q uv
	$(VENV)/uv/bin/uv pip compile -q --universal --upgrade --generate-hashes --no-emit-index-url --no-annotate \
		--custom-compile-command "make lock" --python-version 3.11 --group dev -o requirements.lock pyproject.toml
	for folder in tests/npm tests/npm/github; do (cd $$folder && rm -f package-lock.json && \
		npm install --silent --package-lock-only --no-audit --no-fund); done

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m docs.generate --check

test: $(INSTALLED) $(NPM) $(GITHUB)
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

# `make chaos ARGS="work --sequences 2000 --seed 7"` is about work, anything else about messages.
chaos: $(INSTALLED)
ifeq ($(firstword $(ARGS)),work)
	$(BIN)/python -m tests.survival $(wordlist 2,$(words $(ARGS)),$(ARGS))
else
	$(BIN)/python -m tests.chaos --agents 20 --messages 500 --kills 200 $(ARGS)
endif

demo: $(INSTALLED)
	$(BIN)/swarm demo $(ARGS)

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(INSTALLED)
	$(BIN)/python -m docs.generate

screenshots: $(INSTALLED)
	$(BIN)/python -m tests.ui.screenshots $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
