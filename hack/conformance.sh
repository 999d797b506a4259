#!/usr/bin/env bash
# `make conformance CTS=DIR`: the OpenCL conformance tests, natively and through the remote library, compared.
#
#   CTS=DIR            a clone of github.com/KhronosGroup/OpenCL-CTS (needed until the tests are built)
#   RUNTIMES="..."     which runtimes [default: pocl, and intel-cpu and intel-fpga where build/intel-opencl is]
#   FULL=1             also the slow sub-tests, which mostly test the vendor's compiler
#   TESTS=REGEX        only these "program/subtest" (writes no document)
#   RESUME=1           keeps the results that are there and runs what is missing, after a run that was cut off
#   AGAIN="native remote"   which results to make again [default: remote; native results are kept]
#   CTS_BUILD=DIR      where the tests are built [default: build/conformance/cts]
#   TIMEOUT=SECONDS    of one sub-test (240)
#
# The document: remote-opencl/docs/conformance.md, from all results in build/conformance.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly results=$PWD/build/conformance
readonly manager=${MANAGER:-$PWD/target/release/fpga-device-manager}
readonly intel=$PWD/build/intel-opencl
readonly slow='basic/(astype|async_|bufferreadwriterect|explicit_s2v|hiloeo|imagedim|prefetch|vector_creation|vector_swizzle)|compiler/multi|context_multiple_contexts_same_device|api/kernel_attributes'
export BUILD=${CTS_BUILD:-$results/cts} TIMEOUT=${TIMEOUT:-240} TESTS=${TESTS:-} RESUME=${RESUME:-}
[ -n "${FULL:-}" ] || export SKIP=$slow

runtimes=${RUNTIMES:-pocl}
if [ -z "${RUNTIMES:-}" ] && [ -d "$intel/icd" ]; then runtimes="pocl intel-cpu intel-fpga"; fi

if [ ! -x "$BUILD/bin/test_conformance/thread_dimensions/test_thread_dimensions" ]; then
    [ -d "${CTS:-}" ] || fail "CTS=DIR must name a clone of https://github.com/KhronosGroup/OpenCL-CTS"
    for program in cmake ninja g++; do need "$program" "it, on Debian: apt-get install cmake ninja-build g++"; done
    say "conformance: building the tests (1 minute)"
    CTS_SRC=$(realpath "$CTS") hack/opencl-cts.sh build
fi
if [ -z "${MANAGER:-}" ]; then
    say "conformance: building (release)"
    cargo build --release -p fpga-device-manager -p fpga-opencl-icd
fi

# The environment that selects a runtime natively.
native() {
    case $1 in
        pocl) echo "OCL_ICD_VENDORS=/etc/OpenCL/vendors/pocl.icd" ;;
        *) echo "OCL_ICD_VENDORS=$intel/icd/$1 LD_LIBRARY_PATH=$intel/lib" ;;
    esac
}

run() { # RUNTIME native|remote WRAP
    local out=$results/$1/$2
    [ -z "$TESTS" ] || out=$results/$1/$2-some
    if [ "$2" = native ] && [ -z "$TESTS" ] && [[ " ${AGAIN:-} " != *" native "* ]] &&
        grep -q '"complete": true' "$out/results.json" 2>/dev/null; then
        return
    fi
    say "conformance: $1, $2"
    mkdir -p "$out"
    OUT=$out WRAP=$3 RUNTIME="$1 $2" hack/opencl-cts.sh run | sed 's/^/  /'
}

for runtime in $runtimes; do
    # env(1) sets the variables for the tests alone: this shell's programs must not load another libOpenCL.
    run "$runtime" native "env $(native "$runtime")"
    run "$runtime" remote "env FPGA_INTEL_OPENCL=$intel/lib $manager exec --runtime $runtime --"
done

if [ -z "$TESTS" ]; then
    python3 hack/conformance_table.py "$results" remote-opencl/docs/conformance.md
else
    python3 hack/conformance_table.py "$results" --some $runtimes
fi
