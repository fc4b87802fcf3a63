# One command each: `make lab` opens the course, `make test` runs every test.
# Written for GNU Make 3.81 and later (macOS still ships 3.81), and a POSIX shell.

VENV ?= .venv
LAB_ARGS ?=
PYTEST_ARGS ?= -n auto --dist loadscope --no-loadscope-reorder
MATRIX_ARGS ?=
TORCH_ARGS ?=
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start many processes; each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
# What is started finds its own kind: nbgrader calls alembic, a terminal in JupyterLab vramlab.
export PATH := $(abspath $(BIN)):$(PATH)
START := start.ipynb

AXE_CORE := axe-core@4.14.1
PYODIDE := pyodide@314.0.7

.PHONY: help lab test test-fast check matrix native operators torch site browser notebooks lock environment clean

help:
	@echo 'make lab        install what the course needs (first run) and open the start page'
	@echo 'make test       run every test'
	@echo 'make test-fast  run the quick tests of the engine, in under two minutes on two cores'
	@echo 'make check      check lint, types, wording, and whether generated files are up to date'
	@echo 'make matrix     run every test on every Python and PyTorch that noxfile.py names'
	@echo 'make native     set up the native engine (Linux; downloads 1 GB), and test it'
	@echo 'make operators  compare every operator of PyTorch on both engines; takes half an hour'
	@echo 'make torch VERSION=2.16.0   try a new PyTorch, and write a to-do list, docs/torch-2.16.md'
	@echo 'make site       run all lessons and build the site into build/site/html'
	@echo 'make browser    test lessons and site in Chromium or Chrome; takes a quarter of an hour'
	@echo 'make notebooks  generate exercises/ from solutions/'
	@echo 'make lock       write requirements.txt and environment.yml from the pyproject.toml files'
	@echo 'make clean      remove the environment ($(VENV))'

lab: environment
	@# Not `jupyter lab FILE`: that would show the folder of the file only, without the exercises.
	@$(BIN)/jupyter lab --LabApp.default_url=/lab/tree/$(START) $(LAB_ARGS)

test: environment
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

# Of the engine; those of one lesson are quick by themselves.
test-fast: environment
	@$(BIN)/python -m pytest $(PYTEST_ARGS) -m 'not long' tests/vramlab

check: environment
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy vramlab packages benchmarks
	@$(BIN)/python .ci/plain_english.py
	@$(BIN)/python -m docs.builder.colab --check
	@$(BIN)/python -m vramlab_classroom.nbgrader.release --check
	@$(BIN)/python -m benchmarks.pages --check
	@$(BIN)/python -m vramlab_course.translations --check
	@$(BIN)/python -m pytest -q tests/test_packaging.py

# On the Pythons that there are; each PyTorch takes some GiB in .nox. For one of them, see noxfile.py.
matrix: environment
	@$(BIN)/python -m pip install --quiet --requirement .ci/tools/nox.txt
	@$(BIN)/python -m nox $(MATRIX_ARGS)

# The PyTorch of the recording that it is held against; without --cudnn, convolutions are skipped.
native: environment
	@$(BIN)/vramlab native setup --torch 2.11.0 --cudnn
	@$(BIN)/python -m pytest $(PYTEST_ARGS) tests/vramlab/native

operators: environment
	@$(BIN)/vramlab native setup --cudnn
	@$(BIN)/python -m benchmarks.operators

# STEPS=names,sources chooses; SOURCES=FOLDER has the files of PyTorch where there is no network.
torch: environment
	@$(BIN)/python -m benchmarks.new_torch $(or $(VERSION),--help) $(if $(STEPS),--steps $(STEPS)) $(if $(SOURCES),--sources '$(SOURCES)') $(TORCH_ARGS)

# Pyodide runs docs/explain.md in the reader's browser. Without npm, only that page does not work.
site: environment
	@npm install --silent --no-save --prefix build/npm $(PYODIDE) || true
	@$(BIN)/python -m docs.builder

# Neither Playwright nor axe-core (for accessibility; npm fetches it) is in the lock: only these
# tests need them.
browser: environment site
	@$(BIN)/python -m pip install --quiet --editable '.[browser]'
	@npm install --silent --no-save --prefix build/browser $(AXE_CORE)
	@$(BIN)/python -m pytest -m browser tests/browser

notebooks: environment
	@$(BIN)/python -m vramlab_classroom.nbgrader.release

environment:
	@PYTHON='$(PYTHON)' sh .ci/make-environment $(VENV)

lock:
	@PYTHON='$(PYTHON)' sh .ci/make-lock

clean:
	rm -rf $(VENV)
