#!/usr/bin/env bash
# `make images`: archives of the images that the chart installs, in build/images, without a registry and without Docker.
#
#   hack/images.sh                          all that the chart installs, from build/dist, which is built first
#   hack/images.sh kube-scheduler           an unmodified kube-scheduler, for nodes that reach no registry
#   hack/images.sh function-sobel           the function of manifests/examples/sobel
#   FPGA_IMAGES_REGISTRY=registry.example/team FPGA_IMAGES_TAG=v1 hack/images.sh
#                                           names for a registry; images.registry and images.tag of the chart
#
# Beside each archive lies its bill of materials (SBOM), and SHA256SUMS of all. What a node or a registry needs more is in
# manifests/image/README.md.
#
# A node takes an archive by `ctr -n k8s.io images import`, kind by `kind load image-archive`, Docker by `docker load`;
# `skopeo copy oci-archive:FILE docker://NAME` brings it to a registry.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

need gcc "GCC, whose files PoCL links with, on Debian: apt-get install gcc libc6-dev"
case "$*" in
    kube-scheduler)
        hack/control-plane.sh
        export FPGA_KUBE_SCHEDULER=${FPGA_KUBE_SCHEDULER:-build/control-plane${KUBERNETES_VERSION:+-$KUBERNETES_VERSION}/bin/kube-scheduler} ;;
    function-sobel)
        make --silent -C tests/functions OUT="$PWD/build/functions"
        export FPGA_IMAGES_FROM=build/functions ;;
    *) hack/dist.sh ;;
esac
FPGA_IMAGES_REVISION=$(git describe --always --abbrev=40 --dirty --exclude '*' 2>/dev/null || true)
# The same commit gives the same images: their time is the commit's (https://reproducible-builds.org/specs/source-date-epoch/).
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || true)}
FPGA_IMAGES_CREATED=
[ -z "$SOURCE_DATE_EPOCH" ] || FPGA_IMAGES_CREATED=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ 2>/dev/null) ||
    fail "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH is no time; write seconds since 1970, for example SOURCE_DATE_EPOCH=1767225600"
export FPGA_IMAGES_REVISION FPGA_IMAGES_CREATED
cargo run --quiet --release -p fpga-images -- "$@"
