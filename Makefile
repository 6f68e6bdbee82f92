# eQUIC: `make demo` shows it, `make test` proves it. `make` alone lists the targets.
CARGO ?= cargo
export CARGO_TERM_PROGRESS_WHEN ?= auto

.DEFAULT_GOAL := help
.PHONY: help setup build demo test lint fmt root header clean bench-gateway bench-wire bench-reading


help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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

bench-wire: setup ## ns to parse and write packet headers, frames and transport parameters
	@$(CARGO) bench --quiet -p equic-wire --bench wire

bench-reading: root setup ## milliseconds per look at a gateway with full tables
	@$(CARGO) bench --quiet -p equic-lab --bench reading

include packaging/install.mk
