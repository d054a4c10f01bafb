PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup test test-oldest test-adapters fuzz lint types torture docs dist demo reproduce bench bench-accuracy bench-peers \
	bench-adapters bench-tracked clean

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

# The tests of the library on the oldest torch that pyproject.toml promises, or on another one, TORCH=2.9.0, in an
# environment of its own. As a rule torch brings CUDA along, some gigabytes; an index of CPU builds does not:
# make test-oldest PIP_INDEX_URL=… PIP_EXTRA_INDEX_URL=…
TORCH ?= 2.13.0
OLDEST := .venv-torch-$(TORCH)
# Read by themselves, since the package would refuse a torch that it does not promise.
NEEDED := import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']; \
	print(*p['lab'], *p['references'], *p['tests'], 'numpy', sep='\n')

test-oldest: $(OLDEST)/.ready
	OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -q -n auto tests --ignore tests/lab

$(OLDEST)/.ready: pyproject.toml
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --upgrade pip
	$(OLDEST)/bin/python -c "$(NEEDED)" > $(OLDEST)/needed.txt
	$(OLDEST)/bin/python -m pip install --quiet "torch==$(TORCH)" --requirement $(OLDEST)/needed.txt
	$(OLDEST)/bin/python -m pip install --quiet --no-deps --editable .
	@touch $(OLDEST)/.ready

# Random networks and operators, every engine against nested torch.func: make fuzz MINUTES=30 SEED=1
MINUTES ?= 5
SEED ?= 0
fuzz: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python tests/support/fuzz.py --minutes $(MINUTES) --seed $(SEED)

# Scripts of DeepXDE and PINA, before and after one line, in environments of their own. Some minutes.
test-adapters: $(READY)
	cd benchmarks && ../$(BIN)/python -m peers.environments deepxde pina
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -rs tests/adapters

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/pyright

# Kills, damaged files and bad commands, by the hundred: nothing may be lost, accepted or end in a traceback. Some
# minutes.
torture: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python tests/torture/kills.py 88 12
	OMP_NUM_THREADS=1 $(BIN)/python tests/torture/corruption.py 200
	OMP_NUM_THREADS=1 $(BIN)/python tests/torture/commands.py 300

# Solves Poisson's equation in at most a minute of training; the picture is out/demo/solution.png.
demo: $(READY)
	rm -rf out/demo
	$(BIN)/dudx train poisson --seconds 60 --out out/demo

# Every table and figure of the study in small, in a few minutes: out/reproduction. For the real sizes see
# reproduction/README.md.
reproduce: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m reproduction --all --profile smoke --out out/reproduction

# The site, in out/docs/index.html, with the figures of the report drawn first; a warning is an error. Its tools have an
# environment of their own, which sees the packages of the other one, so that names are documented by the library
# itself.
DOCS := .venv-docs
WANTED := import tomllib; \
	print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'], sep='\n')

docs: $(DOCS)/.ready
	OMP_NUM_THREADS=1 $(BIN)/python -m reproduction --from-data
	PYTHONPATH=$$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))") \
		$(DOCS)/bin/python -m sphinx -W --keep-going -q -b html docs out/docs
	@echo out/docs/index.html

$(DOCS)/.ready: $(READY)
	$(PYTHON) -m venv $(DOCS)
	$(BIN)/python -c "$(WANTED)" > $(DOCS)/needed.txt
	$(DOCS)/bin/python -m pip install --quiet --requirement $(DOCS)/needed.txt
	@touch $(DOCS)/.ready

# Wheel and source distribution, checked; then the wheel alone in a new environment outside of this folder.
dist:
	rm -rf dist
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet build twine
	.venv-dist/bin/python -m build --outdir dist .
	.venv-dist/bin/python -m twine check --strict dist/*
	$(PYTHON) tests/support/installed.py dist

bench: $(READY)
	$(BIN)/python benchmarks/training_step.py

# Many hours for all optimizers, engines and seeds; interrupt it and start again at will.
bench-accuracy: $(READY)
	$(BIN)/python benchmarks/time_to_accuracy.py

# Hours for the whole table; interrupt it and start again at will, rows that are there are not measured again.
bench-peers: $(READY)
	cd benchmarks && ../$(BIN)/python -m peers.environments
	cd benchmarks && ../$(BIN)/python -m peers.run
	cd benchmarks && ../$(BIN)/python -m peers.report

# Seconds a training step, before and after one line in the script.
bench-adapters: $(READY)
	cd benchmarks && ../$(BIN)/python -m peers.environments deepxde pina
	cd benchmarks && ../$(BIN)/python -m adapters

# Timings to be kept from version to version, out/tracked.json in the format of pytest-benchmark, which has an
# environment of its own and sees the packages of the other one.
TRACKED := .venv-tracked
bench-tracked: $(TRACKED)/.ready
	mkdir -p out
	OMP_NUM_THREADS=1 PYTHONPATH=$$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))"):. \
		$(TRACKED)/bin/python -m pytest -q -p no:cacheprovider benchmarks/tracked \
		--benchmark-timer=time.process_time --benchmark-json=out/tracked.json

$(TRACKED)/.ready: $(READY)
	$(PYTHON) -m venv $(TRACKED)
	$(TRACKED)/bin/python -m pip install --quiet "pytest-benchmark>=5.1"
	@touch $(TRACKED)/.ready

clean:
	rm -rf .venv .venv-torch-* .venv-docs .venv-dist .venv-tracked dist out
