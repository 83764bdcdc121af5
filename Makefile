# Each target sets up what it needs: a .venv here, brought up to date when pyproject.toml has changed.
#
#   make demo               predictions beside what then happens, for a simulated grid; TRACE=file for a trace
#   make test               every check there is: ruff, mypy, all tests
#   make lint, make bench   the first two; what measures speed

VENV := .venv
BIN := $(VENV)/bin
CODE := models streams deploy tests
FIT := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	"$$python" -c '$(FIT)' >/dev/null 2>&1 && command -v "$$python" && break; done)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input --prefer-binary

.PHONY: demo test lint bench
.SILENT:

demo: $(VENV)/local
	$(BIN)/queuecast demo $(if $(TRACE),"$(TRACE)")

test: lint
	$(BIN)/python -m pytest

lint: $(VENV)/dev
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

bench: $(VENV)/dev
	$(BIN)/python -m pytest -m benchmark -s tests/benchmarks

# What is installed for development includes what the local stack needs.
$(VENV)/dev: pyproject.toml | $(BIN)/python
	echo "installing queuecast and its tools into $(VENV): about a minute"
	$(INSTALL) -e '.[dev]'
	touch $(VENV)/local $@

$(VENV)/local: pyproject.toml | $(BIN)/python
	echo "installing queuecast into $(VENV): about a minute"
	$(INSTALL) -e '.[local]'
	touch $@

$(BIN)/python:
	test -n "$(PYTHON)" || { echo "no Python 3.11 or newer with its venv module was found; name one: make PYTHON=…" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
