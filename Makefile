# Everything happens in a virtual environment; nothing needs to be installed by hand but Python
# >= 3.11 and a C compiler. `make demo` and `make test` are all a newcomer needs; `make help` lists
# every target that has a `##` behind its name.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Compiles nothing: `.built` does, in several processes, and once.
INSTALL := KFAST_EXTENSIONS= PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --no-build-isolation --editable
NATIVE := $(shell find src_pyx -name '*.p[yx][xd]') $(shell find kfast/consumer kfast/application -name '*.py')

SECONDS ?= 300
SOAK ?= 1
WORKERS ?= 3
FAST := tests/unit tests/property tests/leaks tests/typing $(wildcard tests/test_*.py)

.DEFAULT_GOAL := help
.PHONY: help env build build-core jars registry archives demo demo-spark test test-fast bench bench-spark micro asan soak docs lint clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.tools:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip "setuptools>=77" "cython>=3.2" "jgo>=3"
	touch $@

# What an extra of pyproject.toml lists.
$(VENV)/.core $(VENV)/.dev: $(VENV)/.%: $(VENV)/.tools pyproject.toml
	$(INSTALL) ".[$*]"
	touch $@

# Kafka, which the demo starts, is downloaded meanwhile; if that fails, the demo says so.
$(VENV)/.demo: $(VENV)/.tools pyproject.toml
	@echo "installing what the demo needs and compiling kfast: one to two minutes"
	$(BIN)/python -c "from kfast.local.jars import resolve_jars; resolve_jars()" 2>/dev/null & \
	$(INSTALL) ".[demo]" && \
	$(MAKE) --no-print-directory $(VENV)/.built && wait && touch $@

$(VENV)/.built: $(VENV)/.tools setup.py $(NATIVE)
	$(BIN)/python setup.py --quiet build_ext --inplace >/dev/null
	touch $@

env: $(VENV)/.dev ## make the virtual environment, with everything for development

build-core: $(VENV)/.core $(VENV)/.built ## what lint and make test-fast need, compiled

build: $(VENV)/.dev $(VENV)/.built ## what make test needs, compiled

demo: $(VENV)/.demo $(VENV)/.built ## see what kfast does, on an Apache Kafka of its own
	$(BIN)/python -m kfast demo --kafka

demo-spark: build ## Kafka topics into Parquet with Spark, beside Spark's own connector
	$(BIN)/python -m kfast.demo.spark

jars: build ## fetch the jars of Apache Kafka, Spark's Kafka connector and Iceberg's REST server
	$(BIN)/python -c "from kfast.local.local_kafka import resolve_jars; print(len(resolve_jars()), 'jars')"
	$(BIN)/python -m bench.spark.connector_jars
	$(BIN)/python -m tests.integration.iceberg_server

registry: build ## fetch the schema registry of the tests (159 MB)
	$(BIN)/python -c "from kfast.local.local_registry import resolve_registry; print(len(resolve_registry()), 'files')"

archives: jars ## make the class archives that halve the start of the tests' brokers and Spark
	$(BIN)/python -m tests.class_archives

# Three processes share the tests, which spend much of their time waiting (tests/distribution.py has
# how). Bytecode is kept: hundreds of Python programs and workers of Spark are started, which would
# each compile all of kfast.
test: export PYTHONDONTWRITEBYTECODE :=
test: archives ## all tests, in WORKERS processes (3)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --durations 15

test-fast: export PYTHONDONTWRITEBYTECODE :=
test-fast: export KFAST_TEST_FAST := 1
test-fast: build-core ## unit and property tests, within a minute: no JVM, no jars
	$(BIN)/python -m pytest --quiet -m "not slow" --numprocesses auto --dist worksteal $(FAST)

bench: jars ## a short run of the benchmarks against a real broker
	$(BIN)/python -m bench

bench-spark: jars ## the Spark benchmark
	$(BIN)/python -m bench.spark

micro: build-core ## benchmarks of decoding from memory, without a broker
	$(BIN)/python -m pytest bench/micro --benchmark-only

# On a build of its own.
asan: build ## unit, property and fuzz tests under AddressSanitizer and UBSan, for SECONDS (300)
	$(BIN)/python -m tests.fuzz.run_asan $(SECONDS) $(TESTS)

# Fuzzes the decoder for SECONDS with a fresh seed, which is printed when something is found; then
# what make test does for a while only: kills, rebalances and micro-batches again and again. SOAK=0.1
# does a tenth of what it adds.
soak: archives ## fuzz the decoder for SECONDS, then repeat kills, rebalances and micro-batches
	KFAST_FUZZ_SECONDS=$(SECONDS) $(BIN)/python -m pytest tests/fuzz --timeout 0
	KFAST_SOAK=$(SOAK) $(BIN)/python -m pytest -m soak --timeout 0

docs: build ## build the documentation into build/site, strictly and without a network
	$(BIN)/python -m tools.reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(VENV)/.core ## ruff, mypy and cython-lint, as continuous integration runs them
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --strict bench
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/cython-lint src_pyx

clean: ## remove what was built; the virtual environment stays
	rm -rf build dist *.egg-info $(VENV)/.built $(VENV)/.demo
	find kfast -name '*.so' -delete
