# The few verbs of the project. Every one sets up what it needs; `make help` lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
# The frameworks pin what they need, so they get an environment of their own; few of its files are ever imported, so
# that compiling all of them would take longer than the tests.
FRAMEWORKS := .venv-integrations
OLD_MCP := .venv-oldmcp
# The one test of the pages that sees more where a framework is installed; the others are part of the ordinary run.
TYPES_OF_PAGES := tests/test_docs_blocks.py::test_python_blocks_are_free_of_faults_that_a_type_checker_sees
# Bytecode must exist, or imports read twice too slow.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run test coverage test-slow test-integrations test-browser test-cluster seeds check house bench growth \
        bench-cluster conformance docs site clean

help: ## list the verbs
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "This is Python %d.%d." % sys.version_info[:2])' || \
		{ echo "Name Python 3.11 or newer: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3"; exit 1; }
	@echo "Setting up in $(VENV), a minute or two the first time:"
	@echo "  1/3 an environment for $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@echo "  2/3 pip"
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@echo "  3/3 surehand and what it needs (about 90 packages)"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev --editable '.[documents,web,serve,chat]'
	@touch $(STAMP)

setup: $(STAMP) ## make .venv with surehand and everything to work on it

run: $(STAMP) ## the tour: the product working, step by step
	@$(BIN)/surehand tour

# Tests wait for processes they started for about half of their time: two workers for each of two cores. One that has
# nothing left takes tests from another, so that none works alone at the end.
test: $(STAMP) ## the ordinary tests
	$(BIN)/python -m pytest -n 4 --dist worksteal

coverage: $(STAMP) ## the ordinary tests, with the lines they reach counted (about twice as long)
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term:skip-covered

test-slow: $(STAMP) ## the long ones: fuzz, soak, faults
	$(BIN)/python -m pytest -n 2 -m slow

$(FRAMEWORKS)/.ready: pyproject.toml constraints-integrations.txt
	$(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(FRAMEWORKS)/bin/python -m pip install --quiet --no-compile --constraint constraints-integrations.txt --group dev --group integrations \
		--editable '.[documents,web,serve,chat,claude,pydantic-ai,langchain,openai-agents,google-adk]'
	@touch $(FRAMEWORKS)/.ready

$(OLD_MCP)/.ready: tests/mcp/old_clients.txt
	$(PYTHON) -m venv $(OLD_MCP)
	$(OLD_MCP)/bin/python -m pip install --quiet --requirement tests/mcp/old_clients.txt
	@touch $(OLD_MCP)/.ready

test-integrations: $(FRAMEWORKS)/.ready $(OLD_MCP)/.ready ## the adapters with the real frameworks, type-checked and tested
	$(FRAMEWORKS)/bin/pyright --project tests/integrations/pyrightconfig.json
	$(FRAMEWORKS)/bin/python -m pytest -n 2 tests/integrations $(TYPES_OF_PAGES)
	timeout 180 $(FRAMEWORKS)/bin/python -m pytest tests/mcp/test_old_clients.py
	SUREHAND_TEST_INSTALLS=1 timeout 240 $(FRAMEWORKS)/bin/python -m pytest -n 2 --dist loadfile --timeout 220 tests/acp/test_acpx.py \
		tests/mcp/test_inspector.py

test-browser: $(STAMP) ## the console in a real Chromium; skipped, in words, where there can be none
	$(BIN)/python tests/browser/prepare.py
	timeout 240 $(BIN)/python -m pytest -n 2 tests/browser -m browser -rs

seeds: $(STAMP) ## the table: line of the specification, the test that shows it, the result
	@test ! -e $(FRAMEWORKS)/.ready || $(FRAMEWORKS)/bin/python tests/seeds/table.py --save .cache/frameworks.json tests/integrations
	@test ! -e $(CLUSTER)/.ready || $(LOOPBACK) $(CLUSTER)/bin/python tests/seeds/table.py --save .cache/cluster.json tests/cluster
	$(BIN)/python tests/seeds/table.py --merge .cache/frameworks.json --merge .cache/cluster.json

check: $(STAMP) ## ruff, pyright strict and the layer test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -m pytest -q tests/test_layers.py

house: $(STAMP) ## measures of the code's shape: files, cycles, names
	@$(BIN)/python tests/house.py

bench: $(STAMP) ## the benchmarks: one table of ratios; `make bench growth`: how cost grows
	$(BIN)/python -m benchmarks $(filter growth,$(MAKECMDGOALS))

growth:
	@:

CLUSTER := .venv-cluster
$(CLUSTER)/.ready: pyproject.toml constraints.txt constraints-cluster.txt
	$(PYTHON) -m venv $(CLUSTER)
	$(CLUSTER)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(CLUSTER)/bin/python -m pip install --quiet --constraint constraints.txt --constraint constraints-cluster.txt \
	  --group dev --editable '.[documents,web,serve,chat,cluster]'
	@touch $(CLUSTER)/.ready

# Ray dials the machine's own interface where it finds one; in here there is loopback and nothing else.
LOOPBACK := unshare $(if $(filter 0,$(shell id -u)),-n,-rn) sh -c 'ip link set lo up && exec "$$@"' --

test-cluster: $(CLUSTER)/.ready ## sessions on two real Ray nodes, on loopback alone; and the types of cluster/
	$(CLUSTER)/bin/pyright --pythonpath $(CLUSTER)/bin/python src/surehand/cluster src/surehand/batch
	$(LOOPBACK) $(CLUSTER)/bin/python -m pytest tests/cluster $(TYPES_OF_PAGES) --timeout 600

bench-cluster: $(CLUSTER)/.ready ## the benchmarks of the cluster: one table; PARTS="calls idle wait compute" or some
	$(LOOPBACK) $(CLUSTER)/bin/python -m benchmarks.cluster $(PARTS)

conformance: $(STAMP) ## the official MCP suite against our server and our client
	$(BIN)/python tests/mcp/conformance.py

docs: $(STAMP) ## write the generated pages and the tool catalogue
	$(BIN)/python scripts/docs_pages.py
	$(BIN)/python scripts/session_picture.py

site: $(VENV)-site/.ready ## build the documentation site into .site, offline, every link checked
	$(VENV)-site/bin/zensical build --strict

$(VENV)-site/.ready: constraints-site.txt
	$(PYTHON) -m venv $(VENV)-site
	$(VENV)-site/bin/python -m pip install --quiet --requirement constraints-site.txt
	@touch $@

clean: ## remove what the verbs made
	rm -rf $(VENV) $(VENV)-* .site .cache .bench .pytest_cache .ruff_cache .hypothesis
