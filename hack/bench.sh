#!/usr/bin/env bash
# `make bench`: every figure against its reference, in one run on this machine, in a release build.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

say "bench: building (release)"
cargo build --release -p fpga-device-manager -p fpga-opencl-icd
cargo build --release -p fpga-tests --bin fpga-bench
make --silent -C tests/opencl-programs OUT="$PWD/build/opencl-programs"

say "bench: remote OpenCL against native"
target/release/fpga-bench opencl --programs build/opencl-programs

say "bench: the extender's latency against a handler that does nothing"
cargo bench -p fpga-scheduler-extender --bench latency

say "bench: what the streams of 5,000 collectors cost one replica of the extender"
cargo run --release -p fpga-scheduler-extender --example stream_load
