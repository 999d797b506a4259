#!/usr/bin/env bash
# `make dist`: the programs and libraries for users in build/dist, optimised across crates (thin LTO). The debug
# information of each lies beside it as NAME.debug, where debuggers find it by the name in the program.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly packages=(fpga-scheduler-extender fpga-collector fpga-device-manager fpga-opencl-icd fpga-opencl-layer fpga-hook-c kubectl-fpga fpga-sim)
readonly files=(fpga-scheduler-extender fpga-collector fpga-device-manager kubectl-fpga fpga-sim libfpga_opencl_icd.so libfpga_opencl_layer.so libfpga_hook.so)
readonly built=${CARGO_TARGET_DIR:-target}/dist
readonly dist=$PWD/build/dist

need objcopy "binutils, on Debian: apt-get install binutils"
say "dist: building (thin LTO)"
cargo build --profile dist "${packages[@]/#/-p}"
rm -rf "$dist"
mkdir -p "$dist"
for file in "${files[@]}"; do
    objcopy --only-keep-debug "$built/$file" "$dist/$file.debug"
    (cd "$dist" && objcopy --strip-all --add-gnu-debuglink="$file.debug" "$OLDPWD/$built/$file" "$file")
    say "dist: build/dist/$file, $(($(stat -c %s "$dist/$file") >> 10)) KiB; with debug information $(($(stat -c %s "$built/$file") >> 10)) KiB"
done
