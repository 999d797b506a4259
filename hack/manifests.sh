#!/usr/bin/env bash
# Renders the chart (manifests/chart) with the values of manifests/values into manifests/rendered: what `kubectl apply` takes where
# Helm is not wanted, and the dashboards as Grafana imports them. A test compares them with the chart. Before that, without DIR, it
# writes the definitions of our resources (registry/api) into the chart.
#
#   hack/manifests.sh [DIR]    into another folder
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly out=${1:-manifests/rendered}
readonly helm=build/helm/helm
[ -x $helm ] || fail "$helm is missing. Run: make helm"
# The newest version of Kubernetes that is tested.
kubernetes=$(sed -n 's|^\tk8s.io/kubernetes \(v[^ ]*\)$|\1|p' tests/control-plane/go.mod)
readonly kubernetes

if [ $# = 0 ]; then
    definition=manifests/chart/custom-resources/bitstreams.yaml
    cargo run --quiet -p fpga-registry-api --example definitions >$definition.new
    mv $definition.new $definition
fi

# render NAME VALUES-FILE ...
render() {
    local name=$1 values=() file
    shift
    for file in "$@"; do values+=(--values "manifests/values/$file.yaml"); done
    {
        echo "# Made by hack/manifests.sh from manifests/chart with manifests/values/{$(IFS=,; echo "$*")}.yaml: change those."
        $helm template kube-fpga manifests/chart --namespace kube-fpga --kube-version "$kubernetes" --set "scheduler.version=$kubernetes" "${values[@]}" \
            --no-hooks --set namespace.create=true,certificates.mode=script
    } >"$out/$name.yaml"
}

mkdir -p "$out"
render pocl pocl
render label-node label-node
render cluster-scheduler pocl cluster-scheduler
render router pocl router
render registry pocl registry
render pool pocl pool

# Each dashboard is the one line of JSON in its ConfigMap.
$helm template kube-fpga manifests/chart --set "monitoring.dashboards=true,scheduler.version=$kubernetes" --show-only templates/dashboards/config-maps.yaml |
    sed -n 's/^  kube-fpga-\([a-z]*\)\.json: |$/\1/p; s/^    {/{/p' |
    while read -r name && read -r json; do
        echo "$json" >"$out/dashboard-$name.json"
    done
