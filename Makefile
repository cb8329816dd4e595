# Reprise. `make` prints what there is. Set-up happens by itself on first use.
VENV ?= .venv
SCALE ?= cpu
LAUNCHER ?= $(if $(filter smoke,$(SCALE)),local,workers)
ARGS ?=
PYTHON ?= python3
EXTRAS ?= dev
QUICK := adversarial vae

BIN := $(VENV)/bin
READY := $(VENV)/.ready-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)-$(EXTRAS)
PAGES := $(basename $(notdir $(wildcard conf/experiment/*.yaml)))
at_scale = $(1)$(if $(filter cpu,$(SCALE)),,/$(SCALE))

.DEFAULT_GOAL := help
.PHONY: help setup reproduce reproduce-all list report bench test lint $(PAGES:%=figure-%) $(PAGES:%=plan-%)

help: ## print the targets
	@grep -hE '^[a-z<>-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 24
	@echo "figure-<slug>           run what is missing of an experiment, judge its claims, draw its figure"
	@echo "plan-<slug>             what that would take; nothing is started"
	@echo
	@echo "slugs: $(PAGES)"
	@echo "options: SCALE=smoke|cpu|gpu|paper LAUNCHER=$(shell ls conf/launcher | sed 's/.yaml//' | paste -sd'|') ARGS=\"key=value ...\" VENV=folder"

setup: $(READY) ## make the virtual environment (every other target does it when needed)

$(READY):
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt "setuptools>=77"
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e ".[$(EXTRAS)]"
	@rm -f $(VENV)/.ready-*
	@touch $@

reproduce: setup ## run the quick set at cpu scale and print where figures and verdicts are
	@status=0; for slug in $(QUICK); do $(MAKE) --no-print-directory figure-$$slug || status=1; done; \
	$(BIN)/python -m launch verdicts $(QUICK) scale=$(SCALE); exit $$status

reproduce-all: setup ## the same for every experiment
	@status=0; for slug in $(PAGES); do $(MAKE) --no-print-directory figure-$$slug || status=1; done; \
	$(BIN)/python -m launch verdicts $(PAGES) scale=$(SCALE); exit $$status

$(PAGES:%=figure-%): figure-%: setup
	@$(BIN)/python -m launch -m experiment=$(call at_scale,$*) launcher=$(LAUNCHER) $(ARGS)

$(PAGES:%=plan-%): plan-%: setup
	@$(BIN)/python -m launch plan experiment=$(call at_scale,$*) launcher=$(LAUNCHER) $(ARGS)

list: setup ## the experiments, their scales and minutes
	@$(BIN)/python -m launch list

report: setup ## refresh the tables in README.md and results/README.md from results/
	@$(BIN)/python -m launch report

bench: setup ## speed as ratios measured in one run
	@$(BIN)/python -m launch.bench $(ARGS)

test: setup ## every test
	@$(BIN)/python -m pytest $(ARGS)

lint: setup ## style and import rules
	@$(BIN)/ruff check .
