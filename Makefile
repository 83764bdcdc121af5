# Each target installs its requirements in .venv, and updates them when they change. `make help` lists the targets.

VENV := .venv
BIN := $(VENV)/bin
CODE := models streams deploy queuecast tests
DOCKERFILE := deploy/compose/Dockerfile
IMAGE ?= queuecast:0.1.0
FIT := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3.14 python3; do \
	"$$python" -c '$(FIT)' >/dev/null 2>&1 && command -v "$$python" && break; done)
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check --no-input
COMPILE := $(VENV)/lock/bin/uv pip compile --quiet --upgrade --universal --generate-hashes --python-version 3.11 \
	--no-annotate --custom-compile-command "make lock"

# Containers often set it; then each of the many processes of the tests would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

# Install what the kernels need, and compile them in the background.
EARLY := if $(PIP) install --no-compile --require-hashes -r requirements/kernels.txt 2>/dev/null; then \
	$(BIN)/python -m streams.process.early_start </dev/null >/dev/null 2>&1 & fi

# Number of processes, each with its own servers; the tests of a file run in one process.
PROCESSES ?= 2
TEST := $(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

# Install queuecast with the extra $(1): the versions in requirements/, or those that pyproject.toml allows if the former
# are not available. A package with a wrong hash is an error. $(2) is a command to run before, $(3) an option of pip.
define install
	echo "installing queuecast into $(VENV): about a minute"
	$(2)
	if $(PIP) install $(3) --require-hashes -r requirements/build.txt -r requirements/$(1).txt 2>$(VENV)/install.log; then \
		$(PIP) install --no-build-isolation --no-deps -e .; \
	elif grep -q 'DO NOT MATCH THE HASHES' $(VENV)/install.log; then \
		cat $(VENV)/install.log >&2; exit 1; \
	else \
		echo "requirements/$(1).txt does not fit this machine ($(VENV)/install.log says why): taking what pyproject.toml allows"; \
		$(PIP) install --prefer-binary -e '.[$(1)]'; \
	fi
endef

.PHONY: help demo check test test-all ready servers compiled lint coverage bench bench-slurm simulate docs drawn lock prior sbom release image
.SILENT:

help: ## List the targets
	sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 12

demo: $(VENV)/local ## Compare predictions with outcomes at a simulated grid, or in a trace: TRACE=file
	$(BIN)/queuecast demo $(if $(TRACE),"$(TRACE)")

check: ready ## Run the linters and all tests without servers: while you work
	$(TEST) -m 'not stack and not benchmark and not long'

test: ready ## Run the linters and all tests but the long ones: before a change is finished
	$(TEST)

test-all: ready ## Run every check, also the long ones, as CI does
	$(TEST) -m 'not benchmark' -o norecursedirs='.* */tests/benchmarks' --hypothesis-profile=many --durations=50

# One process runs the linters, another compiles the kernels for the tests, and the third mostly downloads Kafka's jars.
ready: $(VENV)/dev
	$(MAKE) --no-print-directory -j 3 lint compiled $(SERVERS)

test test-all: SERVERS := servers

# Kafka starts faster with the classes in a cache.
servers: $(VENV)/dev
	$(BIN)/python -m deploy.local.stack.class_cache

compiled: $(VENV)/dev
	$(BIN)/python -m tests.support.compiled

lint: $(VENV)/dev ## Run ruff, codespell and mypy
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/codespell $(CODE) docs *.md Makefile mkdocs.yml pyproject.toml .ci .github
	$(BIN)/mypy

coverage: $(VENV)/dev ## Report untested branches, and the tests of each line: TESTS=tests/streams/sources
	mkdir -p covered
	$(BIN)/python -m coverage run -m pytest -m 'not stack and not benchmark and not long' $(TESTS)
	$(BIN)/python -m coverage html --quiet
	$(BIN)/python -m coverage report
	echo "which tests run a line is in covered/html/index.html"

bench: $(VENV)/dev ## Measure speed and memory
	$(BIN)/python -m pytest -m benchmark -s tests/benchmarks

bench-slurm: $(VENV)/dev ## Compare Slurm's own start times with the predictions, as root, an hour: ARGS="--minutes 15"
	$(BIN)/python -m tests.benchmarks.slurm $(ARGS)

simulate: $(VENV)/dev ## Run workers in virtual time with random faults: SEEDS=0-5000
	$(BIN)/python -m tests.worker_simulation --seeds $(or $(SEEDS),0-100)

docs: $(VENV)/dev ## Build the documentation in site/; a dead link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build --strict
	echo "the documentation is in site/index.html"

drawn: $(VENV)/dev ## Draw Grafana's dashboards of the demo in drawn/, without a Grafana
	$(BIN)/python -m tests.drawn drawn

prior: $(VENV)/dev ## Train the pre-trained models on job logs: LOGS="file ..."; that of later estimates: WAITING="file ..."
	$(if $(LOGS)$(WAITING),,$(error set LOGS, WAITING, or both))
	$(if $(LOGS),$(BIN)/python -m tests.prior.train $(LOGS))
	$(if $(WAITING),$(BIN)/python -m tests.prior.waiting $(WAITING))

sbom: $(VENV)/local ## Write the bill of materials sbom.json (CycloneDX): Python packages and Kafka's jars
	$(BIN)/python -m deploy.sbom > sbom.json

# The time stamps in the archives are those of the last commit, so builds are reproducible.
release: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
release: $(VENV)/dev ## Build the files of a version in dist/: wheels, source, bill of materials, checksums
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist >/dev/null
	cd deploy/client && $(CURDIR)/$(BIN)/python -m hatchling build -t wheel -d $(CURDIR)/dist >/dev/null
	$(BIN)/python -m deploy.sbom > dist/queuecast.cdx.json
	cd dist && sha256sum * > SHA256SUMS && cat SHA256SUMS

image: ## Build the container image on a base pinned by its present digest: IMAGE=name
	base=$$(sed -n 's/^ARG PYTHON=//p' $(DOCKERFILE)); \
	digest=$$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$$base"); \
	test -n "$$digest" && docker build -f $(DOCKERFILE) --build-arg PYTHON="$$base@$$digest" -t $(IMAGE) .

lock: $(VENV)/lock ## Update requirements/ to the newest versions that pyproject.toml allows, with hashes
	$(COMPILE) pyproject.toml --extra dev -o requirements/dev.txt
	$(COMPILE) pyproject.toml --extra local -c requirements/dev.txt -o requirements/local.txt
	$(COMPILE) pyproject.toml --extra serve -c requirements/dev.txt -o requirements/serve.txt
	printf '%s\n' msgspec numba numpy scipy | $(COMPILE) - -c requirements/local.txt -o requirements/kernels.txt
	printf 'hatchling>=1.27\neditables\n' | $(COMPILE) - -c requirements/dev.txt -o requirements/build.txt

# The kernels compile while the other packages and Kafka's jars are downloaded. Python compiles only the modules that the
# commands import. The development requirements include those of the local stack.
$(VENV)/dev: pyproject.toml requirements/build.txt requirements/kernels.txt requirements/dev.txt | $(BIN)/python
	$(call install,dev,$(EARLY),--no-compile)
	touch $(VENV)/local $@

$(VENV)/local: pyproject.toml requirements/build.txt requirements/kernels.txt requirements/local.txt | $(BIN)/python
	$(call install,local,$(EARLY),--no-compile)
	touch $@

$(VENV)/lock: | $(BIN)/python
	"$(PYTHON)" -m venv $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check --no-input uv

$(BIN)/python:
	test -n "$(PYTHON)" || { echo "no Python 3.11 or newer with its venv module was found; name one: make PYTHON=…" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
