# eQUIC: `make demo` shows it, `make test` proves it. `make` alone lists the targets.
CARGO ?= cargo
# What packages and benchmarks have: BoringSSL for packets, plots as PNG files. Half of the compile time.
FEATURES := --features boringssl,png
# Arguments of the benchmarks, such as --quick or --markdown.
BENCH ?=
export CARGO_TERM_PROGRESS_WHEN ?= auto
# Where Go's own packages put it, for all targets alike: crates with C in them are compiled again when PATH changes.
ifeq ($(findstring :/usr/local/go/bin:,:$(PATH):),)
export PATH := $(PATH):/usr/local/go/bin
endif

.DEFAULT_GOAL := help
.PHONY: help setup build demo test test-fresh lint fmt root header clean bench-gateway bench-wire bench-reading \
	bench-operations test-kernels soak setup-examples setup-fresh examples test-examples reproduce-gateway \
	reproduce-gateway-quick

# `##` is of everybody's list, `#lab` of the laboratory's.
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: help-lab
help-lab: ## the targets of the laboratory: benchmarks, experiments, checks that take long
	@awk -F ':.*#lab ' '/^[a-z-]+:.*#lab / { printf "  make %-24s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install the Debian packages that are missing
	@scripts/setup.sh all

.PHONY: setup-interop interop interop-quick
setup-interop:
	@scripts/setup.sh interop

setup-examples:
	@scripts/setup.sh examples

setup-fresh:
	@scripts/setup.sh fresh

build: ## target/release/equic, equic-lab, equic-sim, libequic.so, libequic.a, equic_kern.o
	@scripts/setup.sh build
	@$(CARGO) build --release --workspace $(FEATURES)
	@cd sim && $(CARGO) build --release --locked --features png

.PHONY: prove
prove: ## target/release/equic-prove, with which `equic plugin check` looks for proofs (PREVAIL; minutes to compile)
	@cd prove && $(CARGO) build --release --locked

root:
	@if [ "$$(id -u)" != 0 ]; then \
		echo "this needs root, to make network namespaces and to load XDP programs: run 'sudo make $(firstword $(MAKECMDGOALS))'" >&2; \
		exit 1; \
	fi

# The commands alone, with the features of the whole workspace: what `make build` does next is not compiled again.
.PHONY: command
command:
	@scripts/setup.sh build
	@$(CARGO) build --release --workspace $(FEATURES) --bin equic --bin equic-lab

# What the demo runs and nothing else, in target/demo: `make build` and its commands are not replaced.
.PHONY: demo-command
demo-command:
	@scripts/setup.sh build
	@$(CARGO) build --profile demo --locked -p equic-cli -p equic-lab-cli --no-default-features

demo: root setup demo-command ## attacks on an HTTP/3 server, stopped in the kernel (a minute and a half)
	@target/demo/equic-lab demo --out out/demo

.PHONY: demo-plugins
demo-plugins: setup command ## plugins that a server pushes to a client: where they help, and where they mean harm
	@target/release/equic-lab plugin-demo

# SUITES: only these of them, by name, such as "rust kernels". OPTIMIZED=1: compiled as by `make build`, with assertions
SUITES ?=
OPTIMIZED ?=
test: root setup-examples ## everything that is checked before a change lands
	@OPTIMIZED=$(OPTIMIZED) scripts/test.sh $(SUITES)

test-fresh: root setup-fresh ## all of it from a clone with empty caches, then on a busy machine, twice (RUNS=n)
	@scripts/test-fresh.sh

test-kernels: root setup #lab the program on Debian's kernels in QEMU; part of `make test`
	@scripts/kernels.sh

.PHONY: check-lab oracle-linux
check-lab: root setup build #lab QUIC in real time beside virtual time: completion within 10 % (a minute)
	@sim/oracle/lab.py target/release

# QUICK=1: one run of each. KERNEL: another of Debian's, such as linux-image-cloud-amd64 for 6.1
oracle-linux: setup build #lab compare the TCP of the simulator with that of Linux in QEMU (docs/notebook/benchmarks.md)
	@sim/oracle/linux.sh $(if $(QUICK),--quick) $(KERNEL)

DURATION ?= 10m
# Mutated packets: 10^7 for each ten minutes unless it says another number; at most 10^8.
FRAMES ?=
soak: root setup build ## churn, floods, fuzzing, and is everything as before? DURATION=10m
	@scripts/soak.sh $(DURATION) $(FRAMES)

examples: setup-examples ## servers on s2n-quic, quiche, quic-go, aioquic, ngtcp2, picoquic with a quota (docs/servers.md)
	@scripts/examples.sh build

# QUICK=1: a handful of cases. INTEROP: more arguments for `equic-lab interop`, such as --only retry,v2
INTEROP ?=
interop: setup-interop ## everybody's QUIC against everybody's (docs/interop.md; QUICK=1, INTEROP=--full)
	@scripts/interop.sh $(if $(QUICK),quick,full) $(INTEROP)

.PHONY: interop-multipath
interop-multipath: setup #lab several paths between ours and noq, each as client and as server
	@cd bench && $(CARGO) test --quiet --locked -p bench-noq

interop-quick: setup-examples #lab ours against quinn, quic-go, aioquic, noq and picoquic; part of `make test`
	@scripts/interop.sh quick

test-examples: root setup-examples build ## those servers against real clients
	@scripts/examples.sh test

.PHONY: test-lsquic
# LSQUIC: lsquic's repository; SSL: BoringSSL. CHECKS: only these of them, such as "ids retry"
CHECKS ?=
test-lsquic: root setup-examples build #lab the server on lsquic, which no package has (docs/servers.md); not part of `make test`
	@scripts/test-lsquic.sh $(CHECKS)

.PHONY: book
book: ## the documentation as a book, into out/book; checks its links
	@scripts/setup.sh book
	@scripts/book.sh

lint: setup ## formatting, clippy, dependencies (cargo-deny), syntax of shell scripts, style of prose
	@scripts/lint.sh

.PHONY: miri
miri: #lab units of wire and transport under Miri (needs a nightly with the component miri)
	@scripts/miri.sh

.PHONY: loom
loom: #lab shared memory and threads of the gateway in every order, by loom (LOOM_MAX_PREEMPTIONS=3)
	@scripts/loom.sh

fmt: setup ## format Rust and C
	@scripts/lint.sh --fix

header: ## generate the headers of the C libraries and of plugins again
	@$(CARGO) run --quiet --release -p equic-plugin --example plugin_headers plugins/sdk
	@$(CARGO) run --quiet --release -p libequic --example equic_header
	@$(CARGO) run --quiet --release -p libequic_vm --example equic_vm_header > crates/vm-capi/include/equic_vm.h.new
	@mv crates/vm-capi/include/equic_vm.h.new crates/vm-capi/include/equic_vm.h

clean: ## remove what was built
	@$(CARGO) clean
	@rm -rf out

bench-wire: setup #lab ns to parse and write packet headers, frames and transport parameters
	@$(CARGO) bench --quiet -p equic-wire --bench wire

.PHONY: bench-plugins
ROUNDS ?= 40
bench-plugins: setup build #lab the plugins of the tree side by side: lines, bytes, gain, CPU time (ROUNDS=40; a quiet machine)
	@target/release/equic-lab plugin-bench --rounds $(ROUNDS) $(BENCH)

.PHONY: bench-vm vm-random
bench-vm: setup #lab ns a call of bytecode, ours beside rbpf, solana-sbpf, wasmtime and native
	@scripts/bench-vm.sh $(BENCH)

CASES ?= 10000000
vm-random: setup #lab bytecode by chance on both engines of equic-vm; CASES=10000000
	@EQUIC_CASES=$(CASES) $(CARGO) test --release --quiet -p equic-vm --test random -- --nocapture

.PHONY: test-multipath
test-multipath: setup #lab networks of two bad paths for the transport, by seed; 10,000 of them
	@EQUIC_CASES=10000 $(CARGO) test --release --quiet -p equic-transport --lib two_bad_paths

bench-operations: setup #lab what it costs that operations can be replaced, while none is
	@scripts/bench-operations.sh $(BENCH)

.PHONY: profile-transport
profile-transport: setup #lab instructions that a packet costs, by function, counted by valgrind
	@scripts/profile-transport.sh

bench-reading: root setup #lab milliseconds per look at a gateway with full tables
	@$(CARGO) bench --quiet -p equic-lab --bench reading

.PHONY: bench-follow
bench-follow: root setup build #lab how long an interface that is deleted and made again is open (ROUNDS=40)
	@scripts/bench-follow.py target/release/equic $(ROUNDS)

bench-gateway: root setup build #lab what the gateway costs, and what a flood leaves of a server (half an hour; BENCH=--quick)
	@$(CARGO) bench --quiet -p equic-lab --bench gateway -- $(BENCH)
	@target/release/equic-lab gateway-bench $(BENCH)
	@target/release/equic-lab gateway-bench --forged $(BENCH)

.PHONY: bench-deps bench-transport bench-keys
TIER ?= 1
bench-deps: setup setup-examples #lab build the QUIC stacks that the benchmark measures (TIER=2: more of them)
	@scripts/bench.sh build tier1 $(if $(filter 2,$(TIER)),tier2)

bench-transport: root bench-deps #lab ours beside quinn, quiche, s2n-quic, quic-go (half an hour; BENCH=--quick)
	@target/release/equic-lab bench run --transport $(BENCH)

bench-keys: bench-deps #lab 20 GB with each implementation: keys are updated under way (an hour; PEERS="quinn quiche", BYTES=2G)
	@scripts/bench-keys.sh $(PEERS)

# PEERS="equic tquic": these alone
.PHONY: bench-netem
bench-netem: setup build bench-deps #lab goodput by congestion control over Linux' netem in QEMU: 1 % loss (a quarter of an hour; PEERS)
	@scripts/bench-netem.sh $(if $(ROUNDS),--rounds $(ROUNDS)) $(PEERS)

.PHONY: bench-floor bench-kernel bench-guard
bench-floor: setup #lab ns that cryptography and the kernel take for a packet, with nothing around them (as root on veth, too)
	@scripts/bench-floor.sh $(BENCH)

bench-kernel: setup #lab ns a datagram of each way into and out of the kernel: GSO, zero copy, io_uring, AF_XDP (as root on veth, too)
	@scripts/bench-kernel.sh $(BENCH)

.PHONY: bench-crypto
bench-crypto: setup #lab a transfer without BoringSSL's AES-GCM beside one with it (BENCH='--runs 20 --path loopback'; a quiet machine)
	@scripts/bench-crypto.sh $(BENCH)

# BASE: a commit instead of the last tag
BASE ?=
bench-guard: setup #lab is this tree slower than its last tag? (BASE=COMMIT; half an hour; BENCH=--quick; a quiet machine)
	@scripts/bench-guard.sh "$(BASE)" $(BENCH)

reproduce-gateway: root setup build #lab the gateway paper's experiment, into experiments/equic-gateway (an hour)
	@target/release/equic-lab reproduce gateway --out experiments/equic-gateway/results \
		--readme experiments/equic-gateway/README.md

reproduce-gateway-quick: root setup build #lab a small version of it, into out/
	@target/release/equic-lab reproduce gateway --quick --out out/reproduce-gateway

.PHONY: reproduce-highway reproduce-highway-quick
reproduce-highway: root bench-deps #lab "QUIC on the Highway" again, into experiments/highway (half an hour; RESUME=1 goes on)
	@$(if $(RESUME),,rm -rf out/highway)
	@target/release/equic-lab reproduce highway $(if $(RESUME),--resume) --raw out/highway --out experiments/highway/results \
		--readme experiments/highway/README.md

reproduce-highway-quick: root bench-deps #lab a small version of it, into out/
	@rm -rf out/reproduce-highway
	@target/release/equic-lab reproduce highway --quick --out out/reproduce-highway

# NSQUIC: --medium for some of the values alone, or --part fairness
NSQUIC ?=
.PHONY: reproduce-nsquic reproduce-nsquic-quick bench-sim
reproduce-nsquic: setup build #lab the nsQUIC thesis again, in virtual time, into experiments/nsquic (a night; NSQUIC=--medium)
	@target/release/equic-lab reproduce nsquic $(NSQUIC) --gzip --raw out/nsquic$(strip $(NSQUIC)) --out experiments/nsquic/results \
		--readme experiments/nsquic/README.md

reproduce-nsquic-quick: setup build #lab a small version of it, into out/
	@target/release/equic-lab reproduce nsquic --quick --out out/reproduce-nsquic

# PLUGINS: --part figure3 and the like
PLUGINS ?=
.PHONY: reproduce-plugins reproduce-plugins-quick
reproduce-plugins: setup build #lab "The Case for Protocol Plugins" again, in virtual time, into experiments/plugins (minutes)
	@target/release/equic-lab reproduce plugins $(PLUGINS) --out experiments/plugins/results \
		--readme experiments/plugins/README.md

reproduce-plugins-quick: setup build #lab a small version of it, into out/
	@target/release/equic-lab reproduce plugins --quick --out out/reproduce-plugins

bench-sim: setup #lab cost of simulations, compared with ns-3 (NS3_PYTHON: a python that has it; BENCH="--into docs/notebook/benchmarks.md")
	@cd sim && $(CARGO) bench --quiet --locked --bench speed -- $(patsubst docs/%,../docs/%,$(BENCH))

include packaging/install.mk
