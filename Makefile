# One command per intent. Everything lives in .venv, made on first use; PYTHON names another interpreter (3.11+).
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.stamp
KERNELS := build/.kernels
JOBS ?= 2
SECONDS ?= 600
SEED ?= 0
PYTHONS ?= python3.11 python3.12 python3.13

# test: what has to be green at every change; under ten minutes on two cores.
# test-slow: the tests marked slow, about as long again; .ci/run runs both.
# mutation: 120 mutants of each of three programs, with three seeds; prints who sees what.
# test-core: the C core also built with checks of addresses and undefined behaviour, and so is emitted C, of more models; 200 random
# calls of every routine.
# test-builds: the C core by every compiler there is (gcc, clang, or the one of the package ziglang) with several sets of flags, narrow
# vectors and wide ones, one thread and two, four settings of the matrix library, emitted C at -O1 and -O3: the same bytes.
# test-sanitized: every small model of the corpus as a program file and as C, and the examples: addresses, undefined behaviour, leaks,
# races, and under Valgrind; about forty minutes of a processor.
# test-c: every small model of the corpus as C, at levels 1 to 3, operands shared or not; about fifteen minutes of a processor.
# test-debug: kernel tests with bounds checks; the release kernels are back afterwards, whatever the outcome.
# replay: every program of the corpus is the recorded one, byte for byte; GATE=cycles: none is slower.
# fuzz-readers: 500 damaged files of every kind that is read, and 40 processes ended at random; SEED names others.
# test-configs: well-known models at real size compile, and nothing but routing takes kernel cores; about twenty minutes of a processor.
# test-found: every model that was once wrong, at levels 1 to 3 in fp32 and bf16; tests/data/found and tests/hunt/corpus.
# docs: the documentation as a site in build/site.
# test-package: the wheel, built from the source distribution, has everything, and a C++ host is built with it.
# test-wheels: the wheel, built from the source distribution, works in an empty environment of each of PYTHONS.
# test-zoo: the figures of every model of the zoo are the recorded ones; about three minutes of a processor.
# bench: the kernels and stages by pytest-benchmark; `tx8fast bench` compiles and times the model zoo.
# test-all: also the models of torch, transformers and flax (large packages) and every light model.
# hunt: random models against the reference for SECONDS; what fails is shrunk into build/hunt/found. The next run goes on behind
# the last one's seeds and adds to its table of pairs; SEED=N begins at N instead; PAIRS=1 makes nothing but models for pairs
# of operators that have not stood next to each other, until none is missing.
.PHONY: demo test test-slow test-package test-wheels test-zoo test-all test-configs test-found test-proofs test-core test-builds test-sanitized test-c test-debug replay fuzz-readers hunt mutation docs lint bench clean

demo: $(KERNELS)
	$(BIN)/python -m tx8fast.demo

test: $(KERNELS)
	$(BIN)/python -m pytest -q -n $(JOBS) -m "not slow" tests

test-slow: $(KERNELS)
	$(BIN)/python -m pytest -q -n $(JOBS) -m slow tests

test-all: $(KERNELS)
	$(BIN)/python -m pip install --quiet --editable '.[dev,oracle]'
	TX8FAST_ALL_MODELS=1 $(BIN)/python -m pytest -q -n $(JOBS) tests

test-package: $(KERNELS)
	TX8FAST_PACKAGE=1 $(BIN)/python -m pytest -q tests/packaging

test-wheels: $(STAMP)
	rm -rf build/dist && $(BIN)/python -m build --no-isolation --sdist --outdir build/dist . >/dev/null
	set -e; for python in $(PYTHONS); do \
	  $$python -m venv --clear build/wheel-venv; \
	  build/wheel-venv/bin/python -m pip install --quiet build/dist/tx8fast-*.tar.gz; \
	  (cd build/wheel-venv && bin/tx8fast --version && bin/tx8fast bench --only 'gpt2/*' -j 1); \
	done

test-zoo: $(KERNELS)
	TX8FAST_ZOO=1 $(BIN)/python -m pytest -q -n $(JOBS) tests/test_zoo.py

test-configs: $(KERNELS)
	TX8FAST_CONFIGS=1 $(BIN)/python -m pytest -q -n $(JOBS) tests/frontend/hf/test_hf_real_configs.py

test-found: $(KERNELS)
	TX8FAST_ALL_LEVELS=1 $(BIN)/python -m pytest -q -n $(JOBS) tests/found tests/hunt/test_hunt_corpus.py

test-proofs: $(KERNELS)
	TX8FAST_PROVE=1 $(BIN)/python -m pytest -q -n $(JOBS) tests

test-core: $(KERNELS)
	TX8FAST_SANITIZE_C=1 TX8FAST_ROUTINE_CALLS=200 $(BIN)/python -m pytest -q tests/host tests/codegen

test-builds: $(KERNELS)
	TX8FAST_BUILDS=1 $(BIN)/python -m pytest -q tests/host/test_core_builds.py
	for cc in gcc clang "$(abspath $(BIN))/python -m ziglang cc"; do $$cc --version >/dev/null 2>&1 || continue; for level in -O1 -O3; do \
	  TX8FAST_CC="$$cc" TX8FAST_C_LEVEL=$$level $(BIN)/python -m pytest -q tests/codegen/test_random_programs.py \
	  tests/codegen/test_emitted_c.py || exit 1; done; done

test-sanitized: $(KERNELS)
	for tool in 1 thread valgrind; do TX8FAST_SANITIZE_C=$$tool $(BIN)/python -m pytest -q -n $(JOBS) tests/host/test_sanitized.py || exit 1; done
	for tool in 1 thread; do TX8FAST_SANITIZE_C=$$tool $(BIN)/python -m pytest -q -n $(JOBS) \
	  tests/codegen/test_corpus_c.py tests/codegen/test_random_programs.py || exit 1; done

test-c: $(KERNELS)
	TX8FAST_ALL_C=1 $(BIN)/python -m pytest -q -n $(JOBS) tests/codegen/test_corpus_c.py

test-debug: $(STAMP)
	TX8FAST_DEBUG_KERNELS=1 $(BIN)/python setup.py --quiet build_ext --inplace
	$(BIN)/python -m pytest -q tests/kernels tests/alloc tests/simulator; status=$$?; \
	$(BIN)/python setup.py --quiet build_ext --inplace && exit $$status

replay: $(KERNELS)
	$(BIN)/python -m tests.replay.record --gate $(or $(GATE),bytes) -j $(JOBS)

fuzz-readers: $(KERNELS)
	TX8FAST_FUZZ_READERS=500 TX8FAST_FUZZ_SEED=$(SEED) TX8FAST_KILLS=40 \
	$(BIN)/python -m pytest -q -n $(JOBS) tests/readers tests/cli/test_kills.py

hunt: $(KERNELS)
	PYTHONPATH=tests $(BIN)/python -m hunt.run --seconds $(SECONDS) --seed $(SEED) --out build/hunt $(if $(PAIRS),--pairs)

mutation: $(KERNELS)
	TX8FAST_MUTANTS=120 $(BIN)/python -m pytest -q -s tests/mutation

docs: $(STAMP)
	$(BIN)/mkdocs build --strict

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: $(KERNELS)
	$(BIN)/python -m pytest benchmarks --benchmark-enable --benchmark-only

clean:
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .benchmarks .hypothesis
	find tx8fast tests \( -name '*.so' -o -name '__pycache__' \) -prune -exec rm -rf {} +

$(STAMP): pyproject.toml setup.py
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	mkdir -p build
	touch $@ $(KERNELS)

# The install above builds the kernels too; this rule is for a kernel that changed since.
$(KERNELS): setup.py $(wildcard tx8fast/_kernels/*.pyx tx8fast/_kernels/*.pxd tx8fast/host/*.pyx tx8fast/host/*.cpp tx8fast/host/csrc/* tx8fast/host/include/tx8fast/*) | $(STAMP)
	$(BIN)/python setup.py --quiet build_ext --inplace
	touch $@
