# make run: the demo on loopback. make test: every check, and every promise on SQLite and on PostgreSQL.

PYTHON ?= python3
PORT ?= 8000

VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SOURCES := pyproject.toml requirements.txt

.PHONY: help run test test-long test-all lint format matrix torture bench bench-quick docs dist clean

help:
	@echo "make run      the demo project, PORT=$(PORT), DATABASE_URL for PostgreSQL"
	@echo "make test     lint, types, migrations, and every promise on SQLite and on PostgreSQL"
	@echo "make test-all what is long: make test-long and make matrix"
	@echo "make test-long every boundary, fuzz, browsers, front ends and adapters on PostgreSQL, the contract encrypted"
	@echo "make lint     the checks of make test without the tests"
	@echo "make format   let ruff rewrite what it can"
	@echo "make matrix   the contract and the front ends on every other supported Django and Python found here"
	@echo "make torture  the long campaigns against the promises, ARGS=\"kills --seconds 600 --seed 7\" for some"
	@echo "make bench    against hand-written SQL and other products (make bench-quick: five minutes)"
	@echo "make docs     the documentation as a site, in var/site"
	@echo "make dist     the wheel and the source distribution, checked, in dist; what they need (SBOM), in build"
	@echo "make clean    remove the virtual environment, the demo's data and all caches"

run: $(VENV)/run.stamp
	$(BIN)/python manage.py migrate --verbosity 0
	$(BIN)/python manage.py load_sample
	$(BIN)/python manage.py ensure_admin
	@echo "Chat:  http://127.0.0.1:$(PORT)/"
	@echo "Admin: http://127.0.0.1:$(PORT)/admin/"
	@echo "Stop with Ctrl-C."
	@exec $(BIN)/python manage.py run_demo --port $(PORT)

test: $(VENV)/test.stamp
	$(BIN)/python -m tests.run -q $(AGAIN) --beside "$(MAKE_COMMAND) --no-print-directory lint"

test-all: test-long matrix

test-long: $(VENV)/test.stamp
	$(BIN)/python -m tests.run -q --long $(AGAIN)
	HELIX_TEST_ENCRYPTION=1 $(BIN)/python -m tests.run -q $(AGAIN) tests/contract

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	DJANGO_SETTINGS_MODULE=tests.settings $(BIN)/python -m tools.async_store --check
	$(BIN)/python -m tools.http_reference --check
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py check --fail-level WARNING

format: $(VENV)/test.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

matrix: $(VENV)/test.stamp
	$(INSTALL) -e ".[matrix]"
	$(BIN)/nox

torture: $(VENV)/test.stamp
	$(BIN)/python -m tests.torture $(ARGS)

bench: .venv-bench/stamp
	.venv-bench/bin/python -m bench

bench-quick: .venv-bench/stamp
	.venv-bench/bin/python -m bench --quick

docs: .venv-docs/stamp
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --quiet
	@echo "var/site/index.html"

dist: $(BIN)/python
	$(INSTALL) -e ".[release]"
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m venv --clear build/bare
	build/bare/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	$(BIN)/cyclonedx-py environment build/bare/bin/python --output-reproducible --output-file build/sbom.json

clean:
	rm -rf $(VENV) .venv-bench .venv-docs bench/results var .nox .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.x" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make virtual environments (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: $(SOURCES) | $(BIN)/python
	$(INSTALL) -r requirements.txt -e .
	@touch $@

$(VENV)/test.stamp: $(SOURCES) | $(BIN)/python
	$(INSTALL) -r requirements.txt -e ".[binary,demo,test,lint]"
	@touch $@ $(VENV)/run.stamp

.venv-docs/stamp: $(SOURCES) | $(BIN)/python
	$(BIN)/python -m venv .venv-docs
	@echo '*' > .venv-docs/.gitignore
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check "$$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')"
	@touch $@

.venv-bench/stamp: $(SOURCES) | $(BIN)/python
	$(BIN)/python -m venv .venv-bench
	@echo '*' > .venv-bench/.gitignore
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check -e ".[binary,bench]"
	@touch $@
