# eQUIC: `make demo` shows it, `make test` proves it. `make` alone lists the targets.
CARGO ?= cargo
export CARGO_TERM_PROGRESS_WHEN ?= auto

.DEFAULT_GOAL := help
.PHONY: help setup build demo test lint fmt root header clean bench-gateway \
	reproduce-gateway reproduce-gateway-quick

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-24s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install the Debian packages that are missing
	@scripts/setup.sh all

build: ## target/release/equic, libequic.so, libequic.a, equic_kern.o
	@scripts/setup.sh build
	@$(CARGO) build --release --workspace --quiet

root:
	@if [ "$$(id -u)" != 0 ]; then \
		echo "this needs root, to make network namespaces and to load XDP programs: run 'sudo make $(firstword $(MAKECMDGOALS))'" >&2; \
		exit 1; \
	fi

demo: root setup build ## an attack on an HTTP/3 server, stopped in the kernel (about a minute)
	@target/release/equic demo --out out/demo

test: root setup build ## everything that is checked before a change lands
	@scripts/test.sh

lint: setup ## formatting, clippy, shell scripts' syntax
	@scripts/lint.sh

fmt: setup ## format Rust and C
	@scripts/lint.sh --fix

header: ## generate crates/capi/include/equic.h again
	@$(CARGO) run --quiet --release -p libequic --example header > crates/capi/include/equic.h.new
	@mv crates/capi/include/equic.h.new crates/capi/include/equic.h

clean: ## remove what was built
	@$(CARGO) clean
	@rm -rf out

bench-gateway: root setup ## ns per packet and per connection, as ratios to a null program
	@$(CARGO) bench --quiet -p equic-lab --bench gateway

reproduce-gateway: root setup build ## the gateway paper's experiment, into experiments/equic-gateway
	@target/release/equic reproduce gateway --out experiments/equic-gateway/results \
		--readme experiments/equic-gateway/README.md

reproduce-gateway-quick: root setup build ## a small version of it, into out/
	@target/release/equic reproduce gateway --quick --out out/reproduce-gateway
