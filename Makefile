# eQUIC: `make demo` shows the gateway, `make test` runs all tests. `make` without a target lists
# the targets.
CARGO ?= cargo
# Features of packages and benchmarks: BoringSSL for packets, and plots as PNG files. They take half
# of the compile time.
FEATURES := --features boringssl,png
# Additional arguments of the benchmarks, such as --quick or --markdown.
BENCH ?=
export CARGO_TERM_PROGRESS_WHEN ?= auto
# Go's own packages install into this folder. All targets have the same PATH, because crates with C
# code are compiled again if PATH changes.
ifeq ($(findstring :/usr/local/go/bin:,:$(PATH):),)
export PATH := $(PATH):/usr/local/go/bin
endif

.DEFAULT_GOAL := help
.PHONY: help setup build demo test test-fresh lint fmt root header clean bench-gateway bench-wire bench-reading \
	bench-operations test-kernels soak setup-examples setup-fresh examples lint-examples test-examples reproduce-gateway \
	reproduce-gateway-quick

# `make help` prints the texts after `##`, and `make help-lab` prints those after `#lab`.
help: ## print this list of targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: help-lab
help-lab: ## list the targets of the laboratory: benchmarks, experiments, long checks
	@awk -F ':.*#lab ' '/^[a-z-]+:.*#lab / { printf "  make %-24s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install the Debian packages that the build, tests and demo need
	@scripts/setup.sh all

.PHONY: setup-interop interop interop-quick
setup-interop:
	@scripts/setup.sh interop

setup-examples:
	@scripts/setup.sh examples

setup-fresh:
	@scripts/setup.sh fresh

build: ## build equic, equic-lab, equic-sim, libequic.so, libequic.a and equic_kern.o in target/release
	@scripts/setup.sh build
	@$(CARGO) build --release --workspace $(FEATURES)
	@cd lab/sim-cli && $(CARGO) build --release --locked --features png

.PHONY: prove
prove: ## build target/release/equic-prove, which lets `equic plugin check` prove memory safety (compiles for minutes)
	@cd prove && $(CARGO) build --release --locked

root:
	@if [ "$$(id -u)" != 0 ]; then \
		echo "this target needs root, to create network namespaces and to load XDP programs: run 'sudo make $(firstword $(MAKECMDGOALS))'" >&2; \
		exit 1; \
	fi

# Builds only the commands, with the features of the whole workspace. So a later `make build` need
# not compile them again.
.PHONY: command
command:
	@scripts/setup.sh build
	@$(CARGO) build --release --workspace $(FEATURES) --bin equic --bin equic-lab

# Builds only the commands of the demo, in target/demo. So the commands of `make build` are not
# replaced.
.PHONY: demo-command
demo-command:
	@scripts/setup.sh build
	@$(CARGO) build --profile demo --locked -p equic-cli -p equic-lab-cli --no-default-features

demo: root setup demo-command ## attack an HTTP/3 server, and stop the attacks in the kernel (90 seconds)
	@target/demo/equic-lab demo --out out/demo

.PHONY: demo-plugins
demo-plugins: setup command ## show plugins that a server pushes to a client: useful and malicious ones
	@target/release/equic-lab plugin-demo

# SUITES: names of the suites to run, such as "rust kernels"; default: all
# OPTIMIZED=1: compile as `make build` does, with assertions
SUITES ?=
OPTIMIZED ?=
test: root setup-examples ## run all checks that a change must pass
	@OPTIMIZED=$(OPTIMIZED) scripts/test.sh $(SUITES)

test-fresh: root setup-fresh ## run `make test` in a clone with empty caches, then twice under load (RUNS=n)
	@scripts/test-fresh.sh

test-kernels: root setup #lab test the XDP program on Debian's kernels in QEMU; part of `make test`
	@scripts/kernels.sh

.PHONY: check-lab oracle-linux
check-lab: root setup build #lab compare completion times in the simulator and in real time: at most 10 % difference (a minute)
	@lab/sim-cli/oracle/lab.py target/release

# QUICK=1: run each case once
# KERNEL: another of Debian's kernels, such as linux-image-cloud-amd64 for 6.1
oracle-linux: setup build #lab compare the simulator's TCP with that of Linux in QEMU (docs/notebook/benchmarks.md; QUICK=1)
	@lab/sim-cli/oracle/linux.sh $(if $(QUICK),--quick) $(KERNEL)

DURATION ?= 10m
# FRAMES: number of mutated packets, by default 10^7 for each ten minutes, at most 10^8
FRAMES ?=
soak: root setup build ## run fuzzing, churn and floods, and check that the system is unchanged afterwards (DURATION=10m)
	@scripts/soak.sh $(DURATION) $(FRAMES)

examples: setup-examples ## build servers with a quota: s2n-quic, quiche, quic-go, aioquic, ngtcp2, picoquic (docs/servers.md)
	@scripts/examples.sh build

# QUICK=1: only a few test cases
# INTEROP: more arguments for `equic-lab interop`, such as --only retry,v2
INTEROP ?=
interop: setup-interop ## test all pairs of QUIC implementations (docs/interop.md; QUICK=1, INTEROP=--full)
	@scripts/interop.sh $(if $(QUICK),quick,full) $(INTEROP)

.PHONY: interop-multipath
interop-multipath: setup #lab test multipath QUIC between eQUIC and noq, each as client and as server
	@cd lab/peers && $(CARGO) test --quiet --locked -p bench-noq

interop-quick: setup-examples #lab test eQUIC with quinn, quic-go, aioquic, noq and picoquic; part of `make test`
	@scripts/interop.sh quick

lint-examples: setup-examples #lab run clippy on the servers of `make examples` (`make test` does not, because it takes minutes)
	@scripts/examples.sh lint

test-examples: root setup-examples build ## test the servers of `make examples` with real clients
	@scripts/examples.sh test

.PHONY: test-lsquic
# LSQUIC: repository of lsquic
# SSL: repository of BoringSSL
# CHECKS: names of the checks to run, such as "ids retry"; default: all
CHECKS ?=
test-lsquic: root setup-examples build #lab test the server with lsquic, which you must build yourself (examples/lsquic/README.md); not part of `make test`
	@scripts/test-lsquic.sh $(CHECKS)

.PHONY: book
book: ## build the documentation as a book in out/book, and check its links
	@scripts/setup.sh book
	@scripts/book.sh

lint: setup ## check formatting, clippy, dependencies (cargo-deny), shell syntax and style of prose
	@scripts/lint.sh

# SPECS: folder with the sources of the RFCs, for duvet's report in out/compliance
SPECS ?=
.PHONY: compliance
compliance: #lab print how many sentences of the RFCs have code and a test (docs/compliance/README.md; SPECS=FOLDER)
	@scripts/compliance.sh $(SPECS)

.PHONY: miri
miri: #lab run unit tests of equic-wire and equic-transport under Miri (needs a nightly toolchain with the component miri)
	@scripts/miri.sh

.PHONY: loom
loom: #lab check the gateway's shared memory and threads in all orders with loom (LOOM_MAX_PREEMPTIONS=3)
	@scripts/loom.sh

fmt: setup ## format Rust and C
	@scripts/lint.sh --fix

header: ## regenerate the headers of the C libraries and of plugins
	@$(CARGO) run --quiet --release -p equic-plugin --example plugin_headers plugins/sdk
	@$(CARGO) run --quiet --release -p libequic --example equic_header
	@$(CARGO) run --quiet --release -p libequic_vm --example equic_vm_header > crates/vm-capi/include/equic_vm.h.new
	@mv crates/vm-capi/include/equic_vm.h.new crates/vm-capi/include/equic_vm.h

settings: ## write the settings of a service into docs/equic.example.toml
	@$(CARGO) build --quiet --release -p equic-cli
	@scripts/example_settings.py $${CARGO_TARGET_DIR:-target}/release/equic

clean: ## remove build results and out/
	@$(CARGO) clean
	@rm -rf out

bench-wire: setup #lab measure parsing and writing of packet headers, frames and transport parameters, in ns
	@$(CARGO) bench --quiet -p equic-wire --bench wire

.PHONY: bench-plugins
ROUNDS ?= 40
bench-plugins: setup build #lab compare the plugins in plugins/: lines, bytes, gain, CPU time (ROUNDS=40; needs an idle machine)
	@target/release/equic-lab plugin-bench --rounds $(ROUNDS) $(BENCH)

.PHONY: bench-vm vm-random
bench-vm: setup #lab measure a call of bytecode in ns: equic-vm, rbpf, solana-sbpf, wasmtime and native code
	@scripts/bench-vm.sh $(BENCH)

CASES ?= 10000000
vm-random: setup #lab run random bytecode on both engines of equic-vm (CASES=10000000)
	@EQUIC_CASES=$(CASES) $(CARGO) test --release --quiet -p equic-vm --test random -- --nocapture

.PHONY: test-multipath
test-multipath: setup #lab test the transport on 10,000 random networks with two bad paths
	@EQUIC_CASES=10000 $(CARGO) test --release --quiet -p equic-transport --lib two_bad_paths

bench-operations: setup #lab measure the cost of a call of an operation: without a hook, with a hook, with bytecode
	@$(CARGO) bench --quiet -p equic-transport --bench operations -- $(BENCH)
	@$(CARGO) bench --quiet -p equic-plugin-kit --bench calls

.PHONY: profile-transport
profile-transport: setup #lab count the instructions for each packet by function, with valgrind
	@scripts/profile-transport.sh

bench-reading: root setup #lab measure how long it takes to read the state of a gateway with full tables, in ms
	@$(CARGO) bench --quiet -p equic-netns --bench reading

.PHONY: bench-follow
bench-follow: root setup build #lab measure how long an interface is unprotected after it is recreated (ROUNDS=40)
	@scripts/bench-follow.py target/release/equic $(ROUNDS)

bench-gateway: root setup build #lab measure the gateway's cost, and a server's rate during a flood (half an hour; BENCH=--quick)
	@$(CARGO) bench --quiet -p equic-netns --bench gateway -- $(BENCH)
	@target/release/equic-lab gateway-bench $(BENCH)
	@target/release/equic-lab gateway-bench --forged $(BENCH)

.PHONY: bench-deps bench-transport bench-keys
TIER ?= 1
bench-deps: setup setup-examples #lab build the QUIC stacks that the benchmark measures (TIER=2: more stacks)
	@scripts/bench.sh build tier1 $(if $(filter 2,$(TIER)),tier2)

bench-transport: root bench-deps #lab compare eQUIC with quinn, quiche, s2n-quic and quic-go (half an hour; BENCH=--quick)
	@target/release/equic-lab bench run --transport $(BENCH)

bench-keys: bench-deps #lab transfer 20 GB with each implementation, with key updates on the way (an hour; PEERS="quinn quiche", BYTES=2G)
	@scripts/bench-keys.sh $(PEERS)

# PEERS: names of the implementations to measure, such as "equic tquic"
.PHONY: bench-netem
bench-netem: setup build bench-deps #lab measure goodput for each congestion controller with 1 % loss, over Linux's netem in QEMU (15 minutes; PEERS)
	@scripts/bench-netem.sh $(if $(ROUNDS),--rounds $(ROUNDS)) $(PEERS)

.PHONY: bench-floor bench-kernel bench-guard
bench-floor: setup #lab measure only the cryptography and the kernel's work for a packet, in ns (as root also on veth)
	@scripts/bench-floor.sh $(BENCH)

bench-kernel: setup #lab compare ways to pass datagrams to the kernel, in ns: GSO, zero copy, io_uring, AF_XDP (as root also on veth)
	@scripts/bench-kernel.sh $(BENCH)

.PHONY: bench-crypto
bench-crypto: setup #lab compare transfers with and without BoringSSL's AES-GCM (BENCH='--runs 20 --path loopback'; needs an idle machine)
	@scripts/bench-crypto.sh $(BENCH)

# BASE: commit to compare with, by default the last tag
BASE ?=
bench-guard: setup #lab check whether this tree is slower than the last tag (BASE=COMMIT; half an hour; BENCH=--quick; needs an idle machine)
	@scripts/bench-guard.sh "$(BASE)" $(BENCH)

reproduce-gateway: root setup build #lab reproduce the gateway paper's experiment in lab/results/equic-gateway (an hour)
	@target/release/equic-lab reproduce gateway --out lab/results/equic-gateway \
		--readme lab/results/equic-gateway/README.md

reproduce-gateway-quick: root setup build #lab run a small version of `make reproduce-gateway`, in out/
	@target/release/equic-lab reproduce gateway --quick --out out/reproduce-gateway

.PHONY: reproduce-highway reproduce-highway-quick
reproduce-highway: root bench-deps #lab reproduce "QUIC on the Highway" in lab/results/highway (half an hour; RESUME=1 continues)
	@$(if $(RESUME),,rm -rf out/highway)
	@target/release/equic-lab reproduce highway $(if $(RESUME),--resume) --raw out/highway --out lab/results/highway \
		--readme lab/results/highway/README.md

reproduce-highway-quick: root bench-deps #lab run a small version of `make reproduce-highway`, in out/
	@rm -rf out/reproduce-highway
	@target/release/equic-lab reproduce highway --quick --out out/reproduce-highway

# NSQUIC: --medium for only some of the values, or --part fairness for one part
NSQUIC ?=
.PHONY: reproduce-nsquic reproduce-nsquic-quick bench-sim
reproduce-nsquic: setup build #lab reproduce the nsQUIC thesis in virtual time, in lab/results/nsquic (a night; NSQUIC=--medium)
	@target/release/equic-lab reproduce nsquic $(NSQUIC) --gzip --raw out/nsquic$(strip $(NSQUIC)) --out lab/results/nsquic \
		--readme lab/results/nsquic/README.md

reproduce-nsquic-quick: setup build #lab run a small version of `make reproduce-nsquic`, in out/
	@target/release/equic-lab reproduce nsquic --quick --out out/reproduce-nsquic

# PLUGINS: --part and a name, such as --part figure3, for one part
PLUGINS ?=
.PHONY: reproduce-plugins reproduce-plugins-quick
reproduce-plugins: setup build #lab reproduce "The Case for Protocol Plugins" in virtual time, in lab/results/protocol-plugins (minutes)
	@target/release/equic-lab reproduce plugins $(PLUGINS) --out lab/results/protocol-plugins \
		--readme lab/results/protocol-plugins/README.md

reproduce-plugins-quick: setup build #lab run a small version of `make reproduce-plugins`, in out/
	@target/release/equic-lab reproduce plugins --quick --out out/reproduce-plugins

bench-sim: setup #lab measure the cost of simulations, compared with ns-3 (NS3_PYTHON: a Python that has ns-3; BENCH="--into docs/notebook/benchmarks.md")
	@cd lab/sim-cli && $(CARGO) bench --quiet --locked --bench speed -- $(patsubst docs/%,../../docs/%,$(BENCH))

include packaging/install.mk
