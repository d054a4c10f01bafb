PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup test lint types demo bench clean

setup: $(READY)

# One environment for everything; made again when what it is made from changes.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $(READY)

test: $(READY)
	$(BIN)/python -m pytest -q

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/pyright

demo: $(READY)
	$(BIN)/python examples/calibrate_a_step.py

bench: $(READY)
	$(BIN)/python benchmarks/training_step.py

clean:
	rm -rf .venv out
