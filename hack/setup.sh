#!/usr/bin/env bash
# Everything that building, testing and the demo need beyond Rust, Go, a C compiler, Python 3, pkg-config and OpenSSL:
# an OpenCL runtime, its ICD loader, the headers and clinfo. Run it as often as you like.
#
#   hack/setup.sh                      PoCL, from Debian's packages (as root; else it names the command)
#   RUNTIME=intel-fpga hack/setup.sh   besides, Intel's FPGA emulator, from PyPI into build/intel-opencl
#   RUNTIME=intel-cpu  hack/setup.sh   the same wheels; Intel's CPU runtime
#   SKIP_GO=1          hack/setup.sh   don't ask for Go (nothing will start a control plane)
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly runtime=${RUNTIME:-pocl}
readonly debian_packages=(pocl-opencl-icd ocl-icd-libopencl1 ocl-icd-opencl-dev opencl-headers clinfo)
readonly intel_version=2023.2.4
readonly intel=$PWD/build/intel-opencl

need cargo "Rust 1.90 or newer: https://rustup.rs"
need cc "a C compiler, on Debian: apt-get install gcc libc6-dev"
need pkg-config "pkg-config (the C library of the pool's client), on Debian: apt-get install pkg-config"
need openssl "OpenSSL's command (manifests/certificates.sh), on Debian: apt-get install openssl"
need python3 "Python 3, on Debian: apt-get install python3 python3-venv"
[ -n "${SKIP_GO:-}" ] || need go "Go 1.26 or newer: https://go.dev/dl/"

# Prints what is missing, by use and not by package name, so that any distribution will do.
missing_opencl() {
    command -v clinfo >/dev/null || echo "clinfo"
    echo '#include <CL/cl.h>
int main(void) { cl_uint n; return clGetPlatformIDs(0, 0, &n) == 0 && n == 0; }' |
        cc -DCL_TARGET_OPENCL_VERSION=120 -x c - -o /dev/null -lOpenCL 2>/dev/null || echo "the OpenCL headers and ICD loader"
    ls /etc/OpenCL/vendors/pocl*.icd >/dev/null 2>&1 || echo "PoCL"
}

# Intel's runtimes come under Intel's own licence, from PyPI, by the user's own command; nothing of them is redistributed.
install_intel() {
    if [ ! -e "$intel/.installed-$intel_version" ]; then
        say "set-up: installing Intel's OpenCL runtimes $intel_version from PyPI into build/intel-opencl"
        rm -rf "$intel"
        python3 -m venv "$intel" || fail "python3 can't make a venv. On Debian: apt-get install python3-venv"
        "$intel/bin/pip" install --quiet --disable-pip-version-check \
            "intel-opencl-rt==$intel_version" "intel-cmplr-lib-rt==$intel_version" ||
            fail "pip could not install intel-opencl-rt==$intel_version"
        touch "$intel/.installed-$intel_version"
    fi
    icd_folder intel-fpga libintelocl_emu.so
    icd_folder intel-cpu libintelocl.so
}

# A folder with one .icd file selects one runtime: OCL_ICD_VENDORS=build/intel-opencl/icd/NAME
icd_folder() {
    local library=$intel/lib/$2
    [ -e "$library" ] || fail "the wheel has no $2 in $intel/lib"
    mkdir -p "$intel/icd/$1"
    echo "$library" >"$intel/icd/$1/$1.icd"
}

install_debian set-up missing_opencl "PoCL, an OpenCL ICD loader with its headers, and clinfo" "${debian_packages[@]}"
case $runtime in
    pocl) ;;
    intel-fpga | intel-cpu) install_intel ;;
    *) fail "RUNTIME=$runtime is unknown; write pocl, intel-fpga or intel-cpu" ;;
esac
say "set-up: ready ($runtime)"
