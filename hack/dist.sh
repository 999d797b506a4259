#!/usr/bin/env bash
# `make dist`: the programs and libraries for users in build/dist, optimised across crates (thin LTO). The debug
# information of each lies beside it as NAME.debug, where debuggers find it by the name in the program.
#
# Programs need this machine's glibc, or a newer one. Libraries are loaded by programs of others, in images of any age:
# they need glibc 2.28 (RHEL 8; Ubuntu 20.04 has 2.31). Zig's linker has the symbols of each version of glibc; it and
# cargo-zigbuild come from PyPI into build/zig. The wheel of the pool's client has its library in it.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly programs=(fpga-scheduler-extender fpga-collector fpga-node-plugin fpga-endpoint-picker fpga-registry fpga-pool fpga-acc fpga-device-manager kubectl-fpga fpga-sim)
readonly library_packages=(fpga-opencl-icd fpga-opencl-drop-in fpga-opencl-layer fpga-hook-c fpga-acc-c)
readonly libraries=(libfpga_opencl_icd.so drop-in/libOpenCL.so.1 libfpga_opencl_layer.so libfpga_hook.so libfpga_acc.so)
readonly oldest_glibc=2.28
readonly zig_packages=(ziglang==0.14.1 cargo-zigbuild==0.24.0)
readonly zig=$PWD/build/zig
# It puts the list of a program's crates into the program, where scanners look for it.
readonly auditable=0.7.7
readonly target=${CARGO_TARGET_DIR:-target}
readonly dist=$PWD/build/dist

install_zig() {
    local stamp=$zig/.installed
    [ "$(cat "$stamp" 2>/dev/null || true)" != "${zig_packages[*]}" ] || return 0
    say "dist: installing ${zig_packages[*]} from PyPI into build/zig"
    rm -rf "$zig"
    python3 -m venv "$zig" || fail "python3 can't make a venv. On Debian: apt-get install python3-venv"
    "$zig/bin/pip" install --quiet --disable-pip-version-check "${zig_packages[@]}" || fail "pip could not install ${zig_packages[*]}"
    echo "${zig_packages[*]}" >"$stamp"
}

install_auditable() {
    [ ! -x "build/cargo-auditable/$auditable/bin/cargo-auditable" ] || return 0
    say "dist: building cargo-auditable $auditable into build/cargo-auditable (2 minutes, once)"
    cargo install --quiet --locked --root "build/cargo-auditable/$auditable" --target-dir build/cargo-auditable/target cargo-auditable --version "$auditable" ||
        fail "cargo could not install cargo-auditable $auditable"
    rm -rf build/cargo-auditable/target
}

# take BUILT NAME: puts a built file into build/dist, its debug information apart.
take() {
    objcopy --only-keep-debug "$1" "$dist/$2.debug"
    (cd "$dist" && objcopy --strip-all --add-gnu-debuglink="$2.debug" "$1" "$2")
    say "dist: build/dist/$2, $(($(stat -c %s "$dist/$2") >> 10)) KiB; with debug information $(($(stat -c %s "$1") >> 10)) KiB"
}

need objcopy "binutils, on Debian: apt-get install binutils"
need make "make, on Debian: apt-get install make"
need python3 "Python 3, on Debian: apt-get install python3 python3-venv"
install_zig
install_auditable
PATH=$PWD/build/cargo-auditable/$auditable/bin:$PATH
# Paths of this machine would make programs differ.
export RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$PWD=kube-fpga --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
triple=$(rustc --version --verbose | sed -n 's/^host: //p')
readonly triple

say "dist: building the programs (thin LTO)"
cargo auditable build --locked --profile dist "${programs[@]/#/-p}"
say "dist: building the libraries (thin LTO, for glibc $oldest_glibc)"
PATH=$zig/bin:$PATH cargo auditable zigbuild --locked --profile dist --target "$triple.$oldest_glibc" "${library_packages[@]/#/-p}"
readonly built=$(realpath "$target")/$triple/dist
make --silent -C remote-opencl/drop-in BUILT="$built" CC="$zig/bin/python3 -m ziglang cc -target ${triple/-unknown/}.$oldest_glibc"

rm -rf "$dist"
mkdir -p "$dist"
for program in "${programs[@]}"; do take "$(realpath "$target")/dist/$program" "$program"; done
for library in "${libraries[@]}"; do take "$built/$library" "${library##*/}"; done
wheel=$(FPGA_ACC_LIBRARY=$dist/libfpga_acc.so FPGA_ACC_GLIBC=$oldest_glibc python3 pool/acc/python/build_wheel.py "$dist")
say "dist: build/dist/${wheel##*/}, $(($(stat -c %s "$wheel") >> 10)) KiB"
