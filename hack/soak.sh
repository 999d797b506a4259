#!/usr/bin/env bash
# `make soak`: clients and device managers killed at random for SOAK_MINUTES (default 30), and nothing leaked at the end.
# SOAK_SEED makes the choices of an earlier run again.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

say "soak: building"
cargo build --quiet -p fpga-device-manager -p fpga-opencl-icd
cargo build --quiet -p fpga-bench --bin fpga-soak
make --silent -C tests/opencl-programs OUT="$PWD/build/opencl-programs"
exec "${CARGO_TARGET_DIR:-target}/debug/fpga-soak" --programs build/opencl-programs
