#!/usr/bin/env bash
# `make sanitize`: the client library in C programs under AddressSanitizer, under ThreadSanitizer (both with nightly Rust) and
# under Valgrind's memcheck. Nothing is suppressed. A part by itself: hack/sanitize.sh asan|tsan|memcheck
#
# ThreadSanitizer sees all of the library, since the standard library is built with it, too, and the programs link the
# runtime of the same compiler; that it sees is tried first, with a program that races. Helgrind and DRD are of no use here:
# they know the locks of pthreads, and Rust's are words in memory with a system call, so that everything under a lock looks
# like a race to them. Loom tries all orders where they matter most, in remote-opencl/ring.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly part=${1:-all}
readonly target=${SANITIZE_TARGET_DIR:-build/sanitize}
readonly logs=$target/logs
readonly built=${CARGO_TARGET_DIR:-target}/debug
case $part in
    all | asan | tsan | memcheck) ;;
    *) fail "$part is no part of it; write asan, tsan or memcheck" ;;
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
    "threads --rounds 6"
    "random_program --cases 2 --commands 40"
)
readonly host=x86_64-unknown-linux-gnu

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

needs_nightly() {
    rustup toolchain list 2>/dev/null | grep -q '^nightly' ||
        fail "nightly Rust is missing. Install it: rustup toolchain install nightly --profile minimal"
}

# nightly_library SANITIZER FOLDER OPTIONS...: the library with it.
nightly_library() {
    local sanitizer=$1 folder=$2
    shift 2
    RUSTFLAGS=-Zsanitizer=$sanitizer CARGO_PROFILE_DEV_DEBUG=line-tables-only CARGO_INCREMENTAL=0 \
        cargo +nightly build --quiet -p fpga-opencl-icd --target "$host" --target-dir "$folder" "$@"
}

if [ "$part" = all ] || [ "$part" = asan ]; then
    needs_nightly
    nightly_library address "$target"
    make --silent -C tests/opencl-programs OUT="$PWD/build/opencl-programs-asan" \
        CFLAGS="-O1 -g -fsanitize=address -fno-omit-frame-pointer"
    # Leaks are memcheck's: what the driver keeps to the end is meant to be reachable.
    export ASAN_OPTIONS=exitcode=99:detect_leaks=0
    check asan "$target/$host/debug/libfpga_opencl_icd.so" "$PWD/build/opencl-programs-asan"
fi

if [ "$part" = all ] || [ "$part" = tsan ]; then
    needs_nightly
    sysroot=$(rustc +nightly --print sysroot)
    [ -e "$sysroot/lib/rustlib/src/rust/library/Cargo.lock" ] ||
        fail "the standard library's source is missing. Install it: rustup component add rust-src --toolchain nightly"
    nightly_library thread "$target/tsan" -Zbuild-std
    readonly racing=$PWD/build/opencl-programs-tsan
    readonly tsan_icd=$target/tsan/$host/debug/libfpga_opencl_icd.so
    # The runtime is the program's part, and the library's calls have to find all of it.
    make --silent -C tests/opencl-programs OUT="$racing" CFLAGS="-O1 -g -fsanitize=thread" LDFLAGS=-rdynamic \
        LDLIBS="-Wl,--whole-archive $sysroot/lib/rustlib/$host/lib/librustc-nightly_rt.tsan.a -Wl,--no-whole-archive -ldl -lm -lrt"
    export TSAN_OPTIONS=exitcode=99:second_deadlock_stack=1
    rc=0
    "$built/fpga-device-manager" exec --icd "$tsan_icd" -- "$racing/threads" --rounds 1 --race >"$logs/tsan-race.log" 2>&1 || rc=$?
    if [ "$rc" -ne 99 ] || ! grep -q 'fpga_client::' "$logs/tsan-race.log"; then
        fail "ThreadSanitizer doesn't see a race of a program with the library: $logs/tsan-race.log"
    fi
    # The three ways of commands and data.
    check tsan "$tsan_icd" "$racing"
    check tsan-without-ring "$tsan_icd" "$racing" env FPGA_COMMAND_RING=off
    check tsan-without-shared-memory "$tsan_icd" "$racing" env FPGA_SHARED_MEMORY=off
fi

if [ "$part" = all ] || [ "$part" = memcheck ]; then
    need valgrind "it. Debian: apt-get install valgrind"
    cargo build --quiet -p fpga-opencl-icd
    make --silent -C tests/opencl-programs OUT="$PWD/build/opencl-programs"
    check memcheck "$built/libfpga_opencl_icd.so" "$PWD/build/opencl-programs" \
        valgrind --tool=memcheck --quiet --error-exitcode=99 \
        --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite
    # And the library of the pool's client, in a job.
    cargo test --quiet -p fpga-acc-c --test it -- --ignored || failed=1
fi
exit "$failed"
