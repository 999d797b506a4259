#!/usr/bin/env bash
# Builds what the demo needs, says meanwhile what is left, and runs the demo. The Makefile describes the variables.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

# one_of NAME VALUE ALLOWED...
one_of() {
    local name=$1 value=$2 list
    shift 2
    [[ " $* " != *" $value "* ]] || return 0
    list=$(printf " or $name=%s" "$@")
    fail "$name=$value is unknown; write ${list# or }"
}
one_of NODES "${NODES:=modelled}" modelled real
one_of ROUTER "${ROUTER:=1}" 1 0
one_of POOL "${POOL:=0}" 0 1
one_of BASELINE "${BASELINE:=0}" 0 1

# The features are those of the whole workspace: `make test` builds none of these packages once more.
packages=(fpga-tests fpga-device-manager kubectl-fpga fpga-net fpga-pool-leases)
readonly features=fpga-device-manager/fuzzing,fpga-net/election,fpga-pool-leases/exploration
case $POOL-$NODES in
    1-*)
        packages+=(fpga-pool)
        plan=("our programs (3 minutes the first time)") ;;
    0-modelled)
        packages+=(fpga-scheduler-extender fpga-collector fpga-opencl-icd fpga-endpoint-picker)
        plan=("the control plane (6 minutes the first time)" "our programs (4 minutes)") ;;
    0-real)
        packages+=(fpga-scheduler-extender fpga-collector fpga-opencl-icd fpga-endpoint-picker fpga-node-plugin fpga-registry fpga-pool)
        plan=("the control plane (6 minutes the first time)" "a node's programs and Helm (5 minutes)" "our programs (5 minutes)") ;;
esac
plan+=("the demo")

# Announces the next step and those that are left.
at=0
step() {
    local left=("${plan[@]:at+1}")
    at=$((at + 1))
    say "demo: step $at of ${#plan[@]}, ${plan[at - 1]}$([ ${#left[@]} = 0 ] || printf '; then %s' "${left[@]}")"
}

# Downloads go on while the compilers work.
downloads() {
    cargo fetch --locked --quiet
    hack/setup.sh
    [ "$POOL" = 1 ] || hack/envoy.sh
}

[ "$NODES" = modelled ] || hack/node-possible.sh
log=$(mktemp)
downloads >"$log" 2>&1 &
readonly downloads=$!
trap 'kill $downloads 2>/dev/null || true; rm -f "$log"' EXIT
if [ "$POOL" = 0 ]; then
    step
    hack/control-plane.sh servers
fi
if [ "$POOL-$NODES" = 0-real ]; then
    step
    hack/node.sh
    hack/helm.sh
fi
wait $downloads || { cat "$log" >&2; fail "a download or the set-up failed; its output is above"; }
cat "$log"

step
cargo build "${packages[@]/#/-p}" --features "$features"
step
rm -f "$log"
trap - EXIT
exec target/debug/fpga-demo
