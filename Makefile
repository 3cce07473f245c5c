# Every target does all the set-up it needs on a machine with Python 3.11, pip, make and git.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
TORCH := .venv/.torch

.PHONY: help demo test test-torch test-all lint format bench verdicts constraints clean
help:
	@echo "make demo      see what memloci does; writes pages and figures to out/demo"
	@echo "make test      the tests of every change, minutes"
	@echo "make test-torch  the tests that need PyTorch, TransformerLens and onnxruntime; installs them"
	@echo "make test-all  the slow tests too"
	@echo "make lint      style, types, the direction of imports, formats of numbers, dangling references"
	@echo "make verdicts  all claims, a quarter of an hour; writes out/study and the table in README.md"
	@echo "make bench     speed, as ratios; writes out/bench"

# uv installs in seconds what takes pip a minute; pip serves where uv cannot.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[dev]' \
	  || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/python examples/demo.py --out out/demo

# One worker takes a whole file: its fixtures and compiled programs serve all its tests.
test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile

# pip, not uv: it finds builds of torch without GPUs where they are offered.
$(TORCH): $(READY) constraints-torch.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -c constraints-torch.txt -e '.[dev,torch,torch-readers]'
	touch $@

test-torch: $(TORCH)
	$(BIN)/python -m pytest -n 2 tests/exchange

test-all: $(READY)
	MEMLOCI_TEST_ALL=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m ""

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -m tools

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python -m benchmarks --out out/bench

# The table of verdicts in the README comes from here and from nowhere else.
verdicts: $(READY)
	$(BIN)/memloci study all --quick --out out/study --readme README.md

constraints: $(READY)
	$(BIN)/uv pip compile --quiet --upgrade --no-header --no-annotate --no-emit-index-url \
	  --python-version 3.11 --extra dev -o constraints.txt pyproject.toml
	$(BIN)/uv --version | sed 's/^uv \([^ ]*\).*/uv==\1/' >> constraints.txt

clean:
	rm -rf .venv out build dist
