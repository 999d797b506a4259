#!/usr/bin/env bash
# Looks for bytes that break what must hold for all (fuzz/src), for FUZZ_SECONDS per target (default 60).
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${FUZZ_SECONDS:-60}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "error: FUZZ_SECONDS=$seconds is no number of seconds; write for example FUZZ_SECONDS=600" >&2; exit 2; }
rustup run nightly rustc --version >/dev/null 2>&1 || {
    echo "error: libFuzzer needs nightly Rust. Install it: rustup toolchain install nightly --profile minimal" >&2
    exit 1
}
command -v cargo-fuzz >/dev/null || {
    echo "error: cargo-fuzz is missing. Install it: cargo install cargo-fuzz --locked" >&2
    exit 1
}

# A leak of our own ends a target; those of the runtime below are not ours to mend.
export LSAN_OPTIONS=suppressions=$PWD/fuzz/libfuzzer/leaks-of-runtimes.supp:print_suppressions=0

targets=${*:-request events node_state pool_messages ring_frames client_messages tenant_packets}
for target in $targets; do
    corpus=build/fuzz/$target
    mkdir -p "$corpus"
    echo "== $target: $seconds s, from fuzz/seeds/$target and what earlier runs found ($corpus)"
    cargo +nightly fuzz run --fuzz-dir fuzz/libfuzzer --target-dir build/fuzz/target "$target" \
        "$corpus" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1
done
