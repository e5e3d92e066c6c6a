# The verbs of this repository. CI calls `check` and `test`, nothing else.
.PHONY: check test fix bench demo soak install uninstall

# Test-only tools and injected faults: the tests need them, and with the same features everything is built once.
FAULTS = --features relive/faults,relive-journal/faults,relive-workspace/faults

check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --workspace --all-targets $(FAULTS) -- -D warnings
	scripts/check-sizes
	scripts/check-layers
	scripts/check-cases

# Of all crates: most of the time is that of tests of the binary, which wait for another process.
test: export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(nproc))))
test:
	scripts/install-missing
	scripts/install-agents
	env --default-signal=HUP,INT,QUIT,TERM cargo test --workspace $(FAULTS)
	scripts/fuzz-short

fix:
	cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged
	cargo fmt --all

bench:
	scripts/install-restate
	scripts/install-launchers
	cargo build --release -p relive
	cargo bench -p relive-core
	cargo run --release -p relive-bench

demo:
	cargo run --release -- demo

soak:
	PROPTEST_CASES=20000 cargo test --release -p relive-core
	PROPTEST_CASES=5000 cargo test --release -p relive-journal
	PROPTEST_CASES=20000 cargo test --release -p relive-cli-agent
	RELIVE_SWEEP_SEEDS=64 cargo test --release -p relive-journal --features faults sweep
	RELIVE_RESTORES=6000 RELIVE_RULES=1000 cargo test --release -p relive-workspace --features faults
	RELIVE_REWINDS=1000 cargo test --release -p relive --features faults --test cases -- random_rewinds
	RELIVE_KILLS=2000 cargo test --release -p relive --features faults --test kills -- --nocapture --test-threads 1
	RELIVE_VERBS=20000 cargo test --release -p relive --features faults --test torture -- --nocapture --test-threads 1
	scripts/install-agents all
	cargo test --release -p relive --features faults --test cases -- real_acp_agents real_confined
	RELIVE_REQUESTS=300000 cargo test --release -p relive-daemon --test it -- mutations --nocapture
	RELIVE_LOG_MB=1024 cargo test --release -p relive --features faults --test cases -- logs_that_are_followed
	RELIVE_LAUNCHES=2000 cargo test --release -p relive-session --test it -- races --nocapture
	RELIVE_LAUNCHES=10000 cargo test --release -p relive-session --test it -- races --nocapture
	FUZZ_SECONDS=1800 scripts/fuzz-short

# PREFIX=/usr/local for everybody; the default is this user's own. PROFILE=dev installs a debug build.
PREFIX ?= $(HOME)/.local
PROFILE ?= dist
BUILT = $(or $(CARGO_TARGET_DIR),target)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
install:
	cargo build --profile $(PROFILE) -p relive
	scripts/install "$(BUILT)/relive" "$(DESTDIR)$(PREFIX)"

uninstall:
	scripts/uninstall "$(DESTDIR)$(PREFIX)"
