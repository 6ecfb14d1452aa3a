# Start with `make demo` or `make test`. Every target creates the virtual environment .venv when it is missing.
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

# tests wait for other processes a fifth of the time: three at once keep two cores busy
SIDE_BY_SIDE := -n 3 --dist worksteal

.PHONY: demo test test-wide test-all test-cluster test-lowest test-pythons lint bench bench-quick mutants fuzz chaos audit picture paper paper-scaling paper-quick clean

demo: $(READY)
	$(BIN)/psmds demo

test: $(READY)
	$(BIN)/python -m pytest -q -m 'not wide and not cluster' $(SIDE_BY_SIDE)

# broader searches: fuzzing, chaos runs, interrupts at many moments, every way to lose an output stream. Processes that
# are killed and servers that are gone for seconds depend on time: a test that fails is told, and repeated once.
test-wide: $(READY)
	$(BIN)/python -m pytest -q -m 'wide and not cluster' -rR --reruns 1 $(SIDE_BY_SIDE)

test-all: test test-wide

# on real schedulers, networks and containers of this machine; what is missing is installed where that is possible, and
# skipped elsewhere. Links that are cut and nodes that are lost depend on time: a test that fails is told, and repeated
# twice. The image is built while batch jobs wait.
test-cluster: $(READY)
	.ci/clusters
	$(BIN)/python -m pytest -q -m cluster -rsR -n 2 --dist loadfile --reruns 2 tests/lab

# a subset of the tests with the lowest supported dependencies, and with other installed versions of Python
test-lowest: $(READY)
	.ci/versions lowest

test-pythons: $(READY)
	.ci/versions 3.12 3.13

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	-$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m tests.benchmarks

# only results are checked, so waiting threads may sleep (the machine may be shared)
bench-quick: $(READY)
	OMP_WAIT_POLICY=passive $(BIN)/python -m tests.benchmarks --quick

audit: $(READY)
	-@$(BIN)/python -m pip install --quiet --retries 0 'pip-audit>=2.7'
	@$(BIN)/python .ci/audit.py

# faults put in one at a time: which of them no test notices
mutants: $(READY)
	-@$(BIN)/python -m pip install --quiet 'cosmic-ray>=8.3'
	$(BIN)/python -m tests.mutants

fuzz: $(READY)
	$(BIN)/python -m tests.fuzz --cases 10000 --seed 0

chaos: $(READY)
	$(BIN)/python -m tests.chaos --runs 100 --seed 0

# the experiments of the paper, within half an hour; what is finished is kept, so that the same command goes on. Word
# vectors and MNIST are used where WORDS names a file and MNIST a folder.
paper: $(READY)
	$(BIN)/python examples/paper $(if $(WORDS),--words $(WORDS)) $(if $(MNIST),--mnist $(MNIST))

# time and memory with up to 100,000 points, beside peers of `.[bench]` and those of R and PyTorch that are installed, and
# experiment 1 with as many; added to the same results
paper-scaling: $(READY)
	$(BIN)/python -m pip install -q -e '.[bench]'
	$(BIN)/python examples/paper --only scaling larger

paper-quick: $(READY)
	OMP_WAIT_POLICY=passive $(BIN)/python examples/paper --quick

# the map in README
picture: $(READY)
	$(BIN)/python docs/digits.py docs/digits.png

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "psmds-dist needs Python 3.11 or newer; none was found. Install one, or run make PYTHON=/path/to/python3."; exit 1; }
	$(PYTHON) -m venv $(VENV) || { echo "The standard module venv is missing; on Debian or Ubuntu: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) demo-output bench-output .mypy_cache .ruff_cache .pytest_cache .hypothesis
