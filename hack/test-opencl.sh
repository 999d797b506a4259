#!/usr/bin/env bash
# Everything over OpenCL runtimes, one runtime after the other. A runtime that fails does not stop the others.
#
#   hack/test-opencl.sh RUNNER...          RUNNER is the command of the test runner, as the Makefile has it
#   hack/test-opencl.sh random RUNNER...   only random programs: FPGA_RANDOM_PROGRAMS of each kind (10000), on each path of each
#                                          runtime, from FPGA_RANDOM_SEED on
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

[ $# -gt 0 ] || fail "write make test-opencl or make random-programs"
only=all
if [ "$1" = random ]; then
    only=random
    shift
    export FPGA_RANDOM_PROGRAMS=${FPGA_RANDOM_PROGRAMS:-10000}
fi
RUNTIME=intel-fpga hack/setup.sh
export FPGA_INTEL_OPENCL=$PWD/build/intel-opencl/lib

status=0
# over RUNTIME RUNNER...: runs tests over a runtime.
over() {
    local runtime=$1
    shift
    say "test-opencl: over $runtime"
    RUNTIME=$runtime "$@" || status=1
}

# What an OpenCL program of the test's own process loads.
intel() {
    local runtime=$1
    shift
    OCL_ICD_VENDORS=$PWD/build/intel-opencl/icd/$runtime LD_LIBRARY_PATH=$PWD/build/intel-opencl/lib \
        CL_CONFIG_CPU_TARGET_ARCH=core-avx2 over "$runtime" "$@"
}

# What differs between runtimes: programs, the contract of the C calls, what a hostile client finds, what tenants see of each other.
# Two tests run natively over PoCL alone. On Intel's runtimes an event that was waited for has another status for a moment, and a
# blocking write takes its bytes when it is enqueued, although it waits for a read that gives them.
readonly differs='binary(opencl) - test(/^programs::random_(programs|.*natively)/) | package(fpga-device-manager) & test(/(^|::)(hostile|tenants)::/)'
if [ "$only" = random ]; then
    over pocl "$@" --profile random-programs --test opencl -E 'test(/^programs::random_/)'
    for runtime in intel-fpga intel-cpu; do
        over "$runtime" "$@" --profile random-programs --test opencl -E 'test(/^programs::random_commands/) - test(/natively/)'
    done
    exit "$status"
fi
over pocl "$@" --profile opencl --test opencl -E 'binary(opencl)'
over intel-fpga "$@" --profile opencl-intel-fpga --test opencl --test it --test end_to_end --run-ignored all -E "($differs
    | package(fpga-opencl-icd) | package(fpga-device-manager) & test(/joined_by_a_channel|intels_runtimes/)
    | binary(end_to_end) & test(/^(full_loop|functions)::/)) - test(/(^|::)timing::/)"
over intel-cpu "$@" --profile opencl-intel-cpu --test opencl --test it -E "$differs
    | package(fpga-opencl-icd) & test(/what_a_device_claims/)"
intel intel-fpga "$@" --profile opencl-accelerators --test it -E 'package(fpga-accelerators)'
exit $status
