#!/usr/bin/env bash
# `make images`: archives of the images that the chart installs, in build/images, without a registry and without Docker.
#
#   hack/images.sh                          all that the chart installs, from build/dist, which is built first
#   hack/images.sh kube-scheduler           an unmodified kube-scheduler, for nodes that reach no registry
#   hack/images.sh function-sobel           the function of manifests/examples/sobel
#   FPGA_IMAGES_REGISTRY=registry.example/team FPGA_IMAGES_TAG=v1 hack/images.sh
#                                           names for a registry; images.registry and images.tag of the chart
#
# A node takes an archive by `ctr -n k8s.io images import`, kind by `kind load image-archive`, Docker by `docker load`;
# `skopeo copy oci-archive:FILE docker://NAME` brings it to a registry.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

need gcc "GCC, whose files PoCL links with, on Debian: apt-get install gcc libc6-dev"
case "$*" in
    kube-scheduler) hack/control-plane.sh ;;
    function-sobel)
        make --silent -C tests/functions OUT="$PWD/build/functions"
        export FPGA_IMAGES_FROM=build/functions ;;
    *) hack/dist.sh ;;
esac
FPGA_IMAGES_REVISION=$(git rev-parse HEAD 2>/dev/null || true)
export FPGA_IMAGES_REVISION
cargo run --quiet --release -p fpga-images -- "$@"
