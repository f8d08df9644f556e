# One word runs everything. `make demo` and `make test` need only python3 (with venv) and make.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# loadgroup keeps the tests that share one real server on one worker; for more than a third of their time tests only wait,
# so four fill two cores
WORKERS ?= 4
SOAK_TIME ?= 3h
comma := ,
DEBIAN := openssh-server openssh-client rsync slurmctld slurmd slurm-client munge docker.io busybox-static \
	iproute2 gcc libc6-dev shellcheck tmux task-spooler git procps chromium nodejs

.PHONY: help demo test suite soak bench dist evals lint docs lock system-deps sky stores clients clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

demo: .venv/demo.stamp ## the whole arc on a CPU: launch, kill, resume, pull, compare, deliver, tear down
	$(BIN)/python examples/cpu_lifecycle/demo.py

# compiled once: an image that sets PYTHONDONTWRITEBYTECODE would have thousands of processes do it
test: .venv/test.stamp ## lint and the tests side by side, minutes
	-$(BIN)/python -m compileall -q scripts evals examples
	@$(MAKE) --no-print-directory -j2 lint suite

suite: .venv/test.stamp
	$(PYTEST) -n $(WORKERS) --dist loadgroup -m "not soak"

# -rP shows the figures that they print; a test that hangs ends the soak, and does not go on for ever
soak: .venv/test.stamp clients ## the long versions, 3 hours at most: kills, fuzzing, hostile boxes, big files
	timeout --foreground -k 60 $(SOAK_TIME) $(PYTEST) -n $(WORKERS) --dist loadgroup -m soak -rP

bench: .venv/test.stamp ## every speed claim as a ratio measured in one run
	-$(BIN)/python -m compileall -q scripts evals examples
	$(BIN)/python evals/bench/run.py

dist: .venv-dist/stamp ## what users install: skill, plugins and marketplace, one file; seconds
	.venv-dist/bin/python evals/bundle.py

evals: .venv/test.stamp ## prove every case of evals/ without a model, minutes
	$(BIN)/python evals/run_evals.py check --jobs 2

lint: .venv/test.stamp ## ruff, mypy, shellcheck (when installed)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy scripts evals examples tests
	@if command -v shellcheck >/dev/null; then git ls-files '*.sh' .ci/run | xargs -r shellcheck; fi

docs: .venv/test.stamp ## regenerate the generated blocks of the documents
	$(BIN)/python evals/docs.py write

lock: .venv/test.stamp ## resolve requirements.lock anew (needs uv)
	uv pip compile pyproject.toml --all-extras --universal --python-version 3.10 --no-annotate --upgrade \
		--custom-compile-command "make lock" -o requirements.lock

system-deps: ## the Debian packages behind tests/real (root)
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(DEBIAN)

sky: .venv-sky/stamp ## SkyPilot in an environment of its own, for the test of our task files

stores: .venv-stores/stamp ## an S3 client and server in an environment of their own, for the test of object stores

clients: .clients/stamp ## the agent clients, for the tests of what make dist builds

clean:
	rm -rf .venv .venv-dist .venv-sky .venv-stores .clients demo-out build dist *.egg-info

.venv/bin/python:
	$(PYTHON) -m venv .venv

# apart from .venv, which bin/rgt takes for an environment that has all its tools need
.venv-dist/stamp:
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install -q -c requirements.lock pyyaml
	@touch $@

# SkyPilot wants an older click than ours, so it cannot share our environment
.venv-sky/stamp:
	$(PYTHON) -m venv .venv-sky
	.venv-sky/bin/python -m pip install -q skypilot==0.14.1
	@touch $@

# moto brings half of the AWS world, which nothing of ours needs
.venv-stores/stamp:
	$(PYTHON) -m venv .venv-stores
	.venv-stores/bin/python -m pip install -q boto3 'moto[server,s3]' click pyyaml jsonschema numpy
	@touch $@

.clients/stamp:
	npm install --silent --prefix .clients/others @anthropic-ai/claude-code skills @openai/codex
	npm install --silent --prefix .clients/node node@24
	# by number: for a bare name npm takes the newest that fits its own Node, which is the oldest of all
	npm install --silent --prefix .clients/openclaw --ignore-scripts openclaw@$$(npm view openclaw version)
	@touch $@

# what the package needs, not the package: a copy of the scripts in .venv would go stale, and an editable install makes
# every start of Python a third slower
install = $(BIN)/python -m pip install -q -c requirements.lock '.[$(1)]' && $(BIN)/python -m pip uninstall -q -y remote-gpu-trainer

.venv/demo.stamp: .venv/bin/python pyproject.toml requirements.lock
	$(call install,torch$(comma)figures$(comma)stats)
	@touch $@

.venv/test.stamp: .venv/bin/python pyproject.toml requirements.lock
	$(call install,torch$(comma)wandb$(comma)figures$(comma)stats$(comma)leak$(comma)dev)
	@touch $@ .venv/demo.stamp
