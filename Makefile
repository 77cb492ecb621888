# Two commands do all the set-up on a fresh machine: `make chat` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: chat setup fmt lint types imports quick test test-gpu slow snap bench fuzz cycles size check

chat: $(STAMP)
	$(BIN)/ds4chat $(ARGS)

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "ds4chat needs Python 3.11 or newer; set PYTHON=python3.x")'
	@echo "Setting up ds4chat in $(VENV): once, and again when pyproject.toml changes."
	@echo "1 of 2: a Python environment of its own .."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "2 of 2: ds4chat and its libraries are fetched and installed, a minute or two .."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@
	@echo "Done."

fmt: $(STAMP)
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

lint: $(STAMP)
	$(BIN)/ruff format --check . && $(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

quick: $(STAMP)
	$(BIN)/python -m pytest -q -n 2 tests/unit

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 tests

slow: $(STAMP)
	$(BIN)/python -m pytest -m slow tests

test-gpu: $(STAMP)
	$(BIN)/python -m pytest -m gpu tests

snap: $(STAMP)
	DS4CHAT_UPDATE_SNAPSHOTS=1 $(BIN)/python -m pytest -q tests/pilot

bench: $(STAMP)
	$(BIN)/ds4chat bench open

# Five minutes of CPU for each target; `make fuzz SECONDS=20 TARGET=themes` is a look at one.
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),300) $(foreach name,$(TARGET),--target $(name)) $(FUZZ)

cycles: $(STAMP)
	$(BIN)/python -m tests.cycles --n 1000 $(ARGS)

size: $(STAMP)
	$(BIN)/python -m tests.sizes

check: lint types imports quick
