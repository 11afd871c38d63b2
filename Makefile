# Everything happens in a virtual environment; nothing needs to be installed by hand but Python
# >= 3.11 and a C compiler. `make demo` and `make test` are all a newcomer needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
NATIVE := $(wildcard src_pyx/kfast/_native/*.pyx src_pyx/kfast/_native/*.pxd)

.PHONY: env build demo test bench asan soak lint clean

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

test: build
	$(BIN)/python -m pytest

bench: build
	$(BIN)/python -m bench

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/cython-lint src_pyx

clean:
	rm -rf build dist *.egg-info kfast/_native/*.so $(VENV)/.built
