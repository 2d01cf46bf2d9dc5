# Everything here works on a machine that has Python 3.11 or newer, pip and make: the first target that needs the
# environment makes it, in .venv, and makes it anew when pyproject.toml changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RAY := $(VENV)/.ray
# Test processes: one per core, but no more than four, as each costs a start of its own.
WORKERS ?= auto

# The tests start hundreds of processes, each of which would compile all modules that it imports: what comes of that is
# kept, also where the machine is set up not to, and beside the checkout's own files.
unexport PYTHONDONTWRITEBYTECODE
test rigs workers night: export PYTHONPYCACHEPREFIX ?= $(CURDIR)/build/bytecode

.DEFAULT_GOAL := help
.PHONY: help env test rigs workers night check lint format types floors bench bench-runs bench-check bench-full bench-peers bench-jobs \
  ray ray-demo structure docs pictures reference demo demo-model clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(READY) ## make .venv with dagrun and all that its development needs

test: $(READY) ## run the tests (2 to 3 minutes on two quiet cores: 250 seconds of CPU)
	$(BIN)/pytest -q -n $(WORKERS) --maxprocesses 4 --dist worksteal

rigs: $(READY) ## run the long proofs, and what starts processes, servers or a browser (10 minutes)
	$(BIN)/pytest -m "rigs and not night" -n $(WORKERS) --maxprocesses 4 --dist worksteal --timeout 900 --durations 10

workers: $(READY) ## let worker processes carry out 2,000 runs while they and their PostgreSQL are killed
	DAGRUN_WORKER_RUNS=2000 $(BIN)/pytest -m rigs -s --timeout 900 tests/journal/test_worker_processes.py

night: $(READY) ## run all tests, with big numbers
	DAGRUN_NIGHT=1 $(BIN)/pytest -m "" --timeout 0 --durations 0

check: lint types floors structure test ## run every check of a change: lint, format, types, floors, structure, tests

lint: $(READY) ## check style and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(READY) ## put style and format right, where that can be done by itself
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(READY) ## check types
	$(BIN)/mypy

floors: $(READY) ## check that imports go down the floors of the house
	$(BIN)/lint-imports --no-logo

bench: $(READY) ## measure what dagrun costs per step, and how long whole plans take (5 minutes, on a quiet machine)
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/modes.py
	$(BIN)/python benchmarks/latency.py
	$(BIN)/python benchmarks/commands.py
	$(BIN)/python benchmarks/many_runs.py
	$(BIN)/python benchmarks/ordering.py
	$(BIN)/python benchmarks/hedging.py
	$(BIN)/python benchmarks/watch.py --browser
	$(BIN)/python benchmarks/tracing.py
	$(BIN)/python benchmarks/prepare.py
	$(BIN)/python benchmarks/whole.py
	$(BIN)/python benchmarks/boundary.py
	$(BIN)/python benchmarks/mcp_calls.py

bench-runs: $(READY) ## measure what it costs to change a plan, to stream it, and to write its run down (10 minutes)
	$(BIN)/python benchmarks/replanning.py
	$(BIN)/python benchmarks/splicing.py
	$(BIN)/python benchmarks/streaming.py
	$(BIN)/python benchmarks/limits.py
	PYTHONPATH=benchmarks $(BIN)/python benchmarks/pipelines.py
	$(BIN)/python benchmarks/planning.py
	$(BIN)/python benchmarks/simulated_runs.py
	$(BIN)/python benchmarks/journal.py

bench-check: $(READY) ## compare a part of the benchmarks with what was last recorded (a minute and a half at most)
	$(BIN)/python benchmarks/check.py

bench-peers: $(READY) ## compare with other engines, each in an environment of its own in .peers/ (16 minutes)
	PYTHONPATH=benchmarks $(BIN)/python -m peers.environments || true
	PYTHONPATH=benchmarks $(BIN)/python -m peers.compare

bench-full: $(READY) ## measure plans of up to 100,000 steps (5 minutes, 1 GB)
	$(BIN)/python benchmarks/full.py

bench-jobs: $(READY) ## write five jobs with dagrun, LangGraph and Hamilton: lines, concepts, CPU time (5 minutes)
	PYTHONPATH=benchmarks $(BIN)/python -m peers.environments --only "LangGraph @task" --only Hamilton || true
	PYTHONPATH=benchmarks $(BIN)/python -m jobs.compare_jobs

structure: $(READY) ## count files, import circles, and the files that a run passes through; compare with the targets
	$(BIN)/python benchmarks/structure.py --check

docs: $(READY) ## build the site of the documentation in build/site, strictly (a few seconds)
	$(BIN)/python docs/make/build_site.py

pictures: $(READY) ## make the pictures of the documentation from what dagrun prints
	$(BIN)/python docs/make/make_pictures.py
	PYTHONPATH=tests/helpers/views:tests/helpers/browser $(BIN)/python docs/make/make_report_pictures.py
	PYTHONPATH=tests/helpers/views:tests/helpers/browser $(BIN)/python docs/make/make_page_pictures.py

reference: $(READY) ## write the generated pages of docs/reference from the code
	$(BIN)/python docs/make/make_reference.py

ray: $(RAY) ## run steps on two nodes of a Ray cluster on 127.0.0.1, kill workers, and cut a node off (4 minutes)
	PYTHONPATH=benchmarks $(BIN)/python -m on_ray.measure --gate
	$(BIN)/pytest -m rigs --timeout 300 -p no:cacheprovider tests/executors/test_ray_cluster.py

ray-demo: $(RAY) ## watch a failed step being repaired on one node while its sibling computes on the other
	PYTHONPATH=benchmarks $(BIN)/python -m on_ray.demo

demo: $(READY) ## watch a real plan run on real data; its report is then in dagrun-demo/
	$(BIN)/dagrun demo

demo-model: $(READY) ## plan and run with a small language model on this machine, set up in .model/ (500 MB, once)
	PYTHONPATH=benchmarks $(BIN)/python -m real_model.demo $(if $(MODEL),--model "$$MODEL") $(if $(GOAL),"$$GOAL")

clean: ## remove all that make has made, .venv included, but not the model in .model/
	rm -rf $(VENV) .peers dist build dagrun-demo .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Only these targets need Ray, which takes 363 MB.
$(RAY): $(READY)
	@echo "Installing Ray in $(VENV); this takes a minute."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile --editable '.[ray]'
	@touch $@

# Some systems ship Python without ensurepip; there the system's own pip fills the environment.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "dagrun needs Python 3.11 or newer, which $(PYTHON) is not; try: make PYTHON=python3.13" >&2; exit 1; }
	@echo "Making $(VENV); this takes a minute."
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { \
	  $(PYTHON) -m venv --clear --without-pip $(VENV) && \
	  $(PYTHON) -m pip --python $(BIN)/python install -qq pip; }
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile --editable '.[dev,docs,tools]'
	@touch $@
