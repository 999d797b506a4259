#!/usr/bin/env bash
# `make sanitize`: the client library in C programs under AddressSanitizer (with nightly Rust) and under Valgrind's memcheck.
# Nothing is suppressed. A part by itself: hack/sanitize.sh asan|memcheck
#
# Helgrind and DRD are of no use here: they know the locks of pthreads, and Rust's are words in memory with a system call, so
# that everything under a lock looks like a race to them. ThreadSanitizer needs a standard library built with it, which no
# release of Rust has. Orders of threads are checked by Loom where they matter most, in remote-opencl/ring.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly part=${1:-all}
readonly target=${SANITIZE_TARGET_DIR:-build/sanitize}
readonly logs=$target/logs
readonly built=${CARGO_TARGET_DIR:-target}/debug
case $part in
    all | asan | memcheck) ;;
    *) fail "$part is no part of it; write asan or memcheck" ;;
esac

# Short: Valgrind is 50 times slower.
readonly programs=(
    "vector_add --size 1000"
    "write_kernel_read --iterations 20 --warmup 2"
    "null_kernel --pipelined --iterations 600"
    "bandwidth --mib 9 --iterations 1"
    "map_unmap"
    "map_touch --mib 2 --iterations 2"
    "callback_status"
    "retain_release"
    "user_event_deadlock"
    "two_queues_deadlock"
    "compile_link"
    "images"
    "random_program --cases 2 --commands 40"
)

failed=0

# check NAME ICD FOLDER WORDS...: each program of FOLDER through our library, with WORDS before it.
check() {
    local name=$1 icd=$2 folder=$3 program log
    shift 3
    say "sanitize: $name"
    for program in "${programs[@]}"; do
        log=$logs/$name-${program//[^a-z0-9]/_}.log
        # shellcheck disable=SC2086  # a program and its arguments
        if timeout 600 "$built/fpga-device-manager" exec --icd "$icd" -- "$@" "$folder"/$program >"$log" 2>&1; then
            say "  ok    $program"
        else
            say "  FAILS $program: $log"
            failed=1
        fi
    done
}

mkdir -p "$logs"
say "sanitize: building"
cargo build --quiet -p fpga-device-manager
# What is so slow needs long to connect.
export FPGA_CONNECT_TIMEOUT_MS=60000

if [ "$part" != memcheck ]; then
    rustup toolchain list 2>/dev/null | grep -q '^nightly' ||
        fail "nightly Rust is missing. Install it: rustup toolchain install nightly --profile minimal"
    RUSTFLAGS=-Zsanitizer=address CARGO_PROFILE_DEV_DEBUG=line-tables-only CARGO_INCREMENTAL=0 \
        cargo +nightly build --quiet -p fpga-opencl-icd --target x86_64-unknown-linux-gnu --target-dir "$target"
    make --silent -C tests/opencl-programs OUT="$PWD/build/opencl-programs-asan" \
        CFLAGS="-O1 -g -fsanitize=address -fno-omit-frame-pointer"
    # Leaks are memcheck's: what the driver keeps to the end is meant to be reachable.
    export ASAN_OPTIONS=exitcode=99:detect_leaks=0
    check asan "$target/x86_64-unknown-linux-gnu/debug/libfpga_opencl_icd.so" "$PWD/build/opencl-programs-asan"
fi

if [ "$part" != asan ]; then
    need valgrind "it. Debian: apt-get install valgrind"
    cargo build --quiet -p fpga-opencl-icd
    make --silent -C tests/opencl-programs OUT="$PWD/build/opencl-programs"
    check memcheck "$built/libfpga_opencl_icd.so" "$PWD/build/opencl-programs" \
        valgrind --tool=memcheck --quiet --error-exitcode=99 \
        --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite
fi
exit "$failed"
