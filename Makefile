PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup test lint types demo bench bench-peers clean

setup: $(READY)

# One environment for everything; made again when what it is made from changes.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $(READY)

# A process for each core, and one thread in each: networks as small as the ones tested gain nothing from more.
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/pyright

# Solves Poisson's equation; the picture is out/demo/solution.png.
demo: $(READY)
	rm -rf out/demo
	$(BIN)/dudx train poisson --out out/demo

bench: $(READY)
	$(BIN)/python benchmarks/training_step.py

# Hours for the whole table; interrupt it and start again at will, rows that are there are not measured again.
bench-peers: $(READY)
	cd benchmarks && ../$(BIN)/python -m peers.environments
	cd benchmarks && ../$(BIN)/python -m peers.run
	cd benchmarks && ../$(BIN)/python -m peers.report

clean:
	rm -rf .venv out
