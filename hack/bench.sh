#!/usr/bin/env bash
# `make bench`: every figure against its reference, in one run on this machine, in a release build. About an hour;
# a part by itself, which the machine should have to itself too:
#
#   hack/bench.sh opencl [ARGS]   remote OpenCL against native, over each runtime that is installed (a quarter of an hour);
#                                 --rows small,null --runtimes pocl: only that, in seconds. Other ARGS:
#                                 target/release/fpga-bench opencl --help
#   hack/bench.sh scheduling      extender, kube-scheduler with it, collectors, endpoint picker (16 minutes)
#   hack/bench.sh ready           a pod with a board against the same pod without one, from creation to readiness, on real
#                                 nodes; as root, on Linux (10 minutes)
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly part=${1:-all}
shift || true
[ "$part" = opencl ] || [ $# -eq 0 ] || fail "only the part opencl takes arguments: hack/bench.sh opencl --rows small"
case $part in
    all | opencl | scheduling | ready) ;;
    *) fail "$part is no part of the benchmark; write opencl, scheduling or ready" ;;
esac

opencl() {
    say "bench: building (release)"
    cargo build --release -p fpga-device-manager -p fpga-opencl-icd
    cargo build --release -p fpga-bench --bin fpga-bench
    make --silent -C tests/opencl-programs OUT="$PWD/build/opencl-programs"

    say "bench: remote OpenCL against native"
    target/release/fpga-bench opencl --programs build/opencl-programs "$@"
}

scheduling() {
    say "bench: building (release)"
    cargo build --release -p fpga-scheduler-extender -p fpga-collector
    cargo build --release -p fpga-bench --bin fpga-bench
    hack/control-plane.sh
    # It renders the chart, whose scheduler is measured.
    hack/helm.sh

    say "bench: the extender's latency against a handler that does nothing"
    cargo bench -p fpga-scheduler-extender --bench latency

    say "bench: the extender's answers while node states change"
    target/release/fpga-bench watched

    say "bench: what the streams of 1,000 and of 5,000 collectors cost one replica of the extender"
    cargo run --release -p fpga-scheduler-extender --example stream_load -- 1000
    cargo run --release -p fpga-scheduler-extender --example stream_load -- 5000

    say "bench: what the endpoint picker costs beside one that chooses nothing"
    cargo bench -p fpga-endpoint-picker --bench pick

    say "bench: what it costs to record decisions"
    cargo run --release -p fpga-scheduler-extender --example record_cost

    say "bench: pods per second of a real kube-scheduler"
    target/release/fpga-bench throughput

    say "bench: what 1,000 busy collectors write to a real API server"
    target/release/fpga-bench writes

    say "bench: from a task's end to a decision, on the real control plane"
    target/release/fpga-bench freshness

    say "bench: a pod that waits for a healthy board"
    target/release/fpga-bench waiting
}

ready() {
    say "bench: building (release)"
    cargo build --release -p fpga-scheduler-extender -p fpga-collector -p fpga-node-plugin -p fpga-registry -p fpga-pool -p fpga-endpoint-picker \
        -p fpga-device-manager -p fpga-opencl-icd
    cargo build --release -p fpga-bench --bin fpga-bench
    hack/control-plane.sh
    hack/node.sh
    hack/helm.sh

    say "bench: pods with a board against pods without one, from creation to readiness"
    target/release/fpga-bench ready
}

case $part in
    opencl) opencl "$@" ;;
    scheduling) scheduling ;;
    ready)
        hack/node-possible.sh
        ready
        ;;
    all)
        opencl
        scheduling
        if reason=$(hack/node-possible.sh); then ready; else say "bench: hack/bench.sh ready is left out: $reason"; fi
        ;;
esac
