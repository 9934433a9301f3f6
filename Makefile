# Everything a person, CI or a coding agent runs in this repository. `make` alone lists the targets.

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# The MCP inspector, a client that nobody here wrote, for one test. This release takes --header and runs on Node 20.
INSPECTOR_VERSION := 0.16.8
INSPECTOR := @modelcontextprotocol/inspector-cli@$(INSPECTOR_VERSION) @modelcontextprotocol/sdk@1.32.2
INSPECTED := $(VENV)/node/.inspector-$(INSPECTOR_VERSION)
# The real Claude Code, which the tests start with a scripted model on the loopback.
CLAUDE_VERSION := 2.1.197
CLAUDE := $(VENV)/claude/.installed-$(CLAUDE_VERSION)
# A GitHub that nobody here wrote, on the loopback, for the tests of pull requests.
EMULATE_VERSION := 0.11.2
EMULATE := $(VENV)/emulate/.installed-$(EMULATE_VERSION)
# Looks for what keeps people from using a page; the tests of the dashboard run it in each.
AXE_VERSION := 4.14.0
AXE := $(VENV)/axe/.installed-$(AXE_VERSION)
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

.PHONY: help setup system check test chaos demo bench docs screenshots clean

help:
	@echo "make setup   create .venv and install what is missing"
	@echo "make check   formatting, lint, types, layers, generated docs"
	@echo "make test    the whole test suite (ARGS=... goes to pytest)"
	@echo "make chaos   20 agents exchange 500 messages while everything is killed 200 times; takes minutes"
	@echo "make demo    agents work, review, rework and merge; needs no key, account or configuration"
	@echo "make bench   the benchmarks"
	@echo "make docs    write docs/reference again from the code"
	@echo "make screenshots  take the pictures in docs/images again"
	@echo "make clean   remove .venv and caches"

setup: system $(INSTALLED) $(INSPECTED) $(CLAUDE) $(EMULATE) $(AXE)
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
$(INSTALLED): pyproject.toml | system
	@python="$(PYTHON)"; [ -n "$$python" ] || python=$$($(FIND_PYTHON)); \
	if [ -z "$$python" ]; then echo "Python 3.11 or newer is needed: make setup PYTHON=..." >&2; exit 1; fi; \
	set -e; \
	$(BIN)/python -c '' 2>/dev/null || rm -rf $(VENV); \
	if [ ! -d $(VENV) ]; then \
		echo "creating $(VENV) with $$($$python --version)"; \
		$$python -m venv $(VENV) 2>/dev/null || { rm -rf $(VENV); $$python -m virtualenv -q $(VENV); }; \
	fi; \
	echo "installing the project and its tools"; \
	$(BIN)/python -m pip install -q --upgrade 'pip>=25.1'; \
	$(BIN)/python -m pip install -q --editable . --group dev; \
	touch $@

# Without npm, and without CI, its test is skipped.
$(INSPECTED): | $(INSTALLED)
	@command -v npm >/dev/null || { echo "npm is missing: the test with the MCP inspector needs it" >&2; exit 0; }; \
	echo "installing the MCP inspector"; \
	if npm install --silent --no-audit --no-fund --no-save --prefix $(VENV)/node $(INSPECTOR); then touch $@; \
	else echo "the MCP inspector could not be installed, and its test will fail" >&2; fi

$(CLAUDE): | $(INSTALLED) $(INSPECTED)
	@command -v npm >/dev/null || { echo "npm is missing: the tests with Claude Code need it" >&2; exit 0; }; \
	echo "installing Claude Code for the tests"; \
	if npm install --silent --no-audit --no-fund --no-save --prefix $(VENV)/claude @anthropic-ai/claude-code@$(CLAUDE_VERSION); \
	then touch $@; else echo "Claude Code could not be installed, and its tests will fail" >&2; fi

$(EMULATE): | $(INSTALLED) $(CLAUDE)
	@command -v npm >/dev/null || { echo "npm is missing: the tests with emulate need it" >&2; exit 0; }; \
	echo "installing emulate, a GitHub for the tests"; \
	if npm install --silent --no-audit --no-fund --no-save --prefix $(VENV)/emulate emulate@$(EMULATE_VERSION); \
	then touch $@; else echo "emulate could not be installed, and its tests will fail" >&2; fi

$(AXE): | $(INSTALLED) $(EMULATE)
	@command -v npm >/dev/null || { echo "npm is missing: the tests with axe-core need it" >&2; exit 0; }; \
	echo "installing axe-core for the tests"; \
	if npm install --silent --no-audit --no-fund --no-save --prefix $(VENV)/axe axe-core@$(AXE_VERSION); \
	then touch $@; else echo "axe-core could not be installed, and its tests will fail" >&2; fi

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m docs.generate --check

test: $(INSTALLED) $(INSPECTED) $(CLAUDE) $(EMULATE) $(AXE)
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

chaos: $(INSTALLED)
	$(BIN)/python -m tests.chaos --agents 20 --messages 500 --kills 200 $(ARGS)

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
