# Everything happens in a virtual environment; nothing needs to be installed by hand but Python
# >= 3.11 and a C compiler. `make demo` and `make test` are all a newcomer needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
NATIVE := $(shell find src_pyx -name '*.p[yx][xd]')

SECONDS ?= 300
WORKERS ?= 2

.PHONY: env build jars archives demo demo-spark test bench bench-spark micro asan soak lint clean

env: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet "setuptools>=77" "cython>=3.1"
	$(BIN)/pip install --quiet --no-build-isolation --editable ".[dev]"
	touch $@

$(VENV)/.built: $(VENV)/.installed setup.py $(NATIVE)
	$(BIN)/python setup.py --quiet build_ext --inplace --parallel 2
	touch $@

build: $(VENV)/.built

demo: build
	$(BIN)/python -m kfast demo

# Kafka topics into Parquet with Spark, beside Spark's own connector.
demo-spark: build
	$(BIN)/python -m kfast.demo.spark

jars: build
	$(BIN)/python -c "from kfast.local.local_kafka import resolve_jars; print(len(resolve_jars()), 'jars')"
	$(BIN)/python -m bench.spark.connector_jars

# What lets the tests' brokers and Spark start in half the time; made once.
archives: jars
	$(BIN)/python -m tests.class_archives

# Two processes share the tests (see tests/distribution.py). Bytecode is kept: hundreds of Python
# programs and workers of Spark are started, which would each compile all of kfast.
test: export PYTHONDONTWRITEBYTECODE :=
test: archives
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --durations 15

bench: jars
	$(BIN)/python -m bench

bench-spark: jars
	$(BIN)/python -m bench.spark

micro: build
	$(BIN)/python -m pytest bench/micro --benchmark-only

# The decoder under AddressSanitizer and UBSan: unit, property and fuzz tests on a build of its own.
asan: build
	$(BIN)/python -m tests.fuzz.run_asan $(SECONDS)

# Fuzzes the decoder for SECONDS with a fresh seed, which is printed when something is found; then
# what make test does for a while only: kills, rebalances and micro-batches again and again.
soak: archives
	KFAST_FUZZ_SECONDS=$(SECONDS) $(BIN)/python -m pytest tests/fuzz --timeout 0
	KFAST_SOAK=1 $(BIN)/python -m pytest -m soak --timeout 0

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --strict bench
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/cython-lint src_pyx

clean:
	rm -rf build dist *.egg-info $(VENV)/.built
	find kfast -name '*.so' -delete
