#!/usr/bin/env bash
# `make demo`: builds the control plane and the named packages of ours at the same time, since each build has long
# steps that use one processor, then runs the demo.
set -euo pipefail
cd "$(dirname "$0")/.."

hack/control-plane.sh &
control_plane=$!
# Ctrl-C does not reach a job in the background.
trap 'kill "$control_plane" 2>/dev/null || true' EXIT
cargo build "${@/#/-p}"
wait "$control_plane"
trap - EXIT
exec target/debug/fpga-demo
