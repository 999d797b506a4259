#!/usr/bin/env bash
# Puts the definitions of the resources that the examples of gateways use into build/gateway-api: of the Gateway API, its Inference
# Extension, and Istio, each from its project's Go module (Apache License 2.0). Go checks the modules by its checksum database, and
# their sums are pinned here.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly out=$PWD/build/gateway-api
stamp=$(cksum <"$0")
[ "$(cat "$out/.stamp" 2>/dev/null || true)" != "$stamp" ] || exit 0
need go "Go 1.26 or newer: https://go.dev/dl/"

# take MODULE@VERSION SUM FILE ...
take() {
    local module=$1 sum=$2 told folder
    shift 2
    told=$(cd "$out" && go mod download -json "$module") || fail "Go can't download $module"
    [[ $told == *"\"Sum\": \"$sum\""* ]] || fail "$module is not the module that was pinned"
    folder=$(sed -n 's/^\s*"Dir": "\(.*\)",\?$/\1/p' <<<"$told")
    for file in "$@"; do install -m 644 "$folder/$file" "$out/"; done
}

mkdir -p "$out"
rm -f "$out"/*.yaml
take sigs.k8s.io/gateway-api@v1.4.0 h1:ZwlNM6zOHq0h3WUX2gfByPs2yAEsy/EenYJB78jpQfQ= \
    config/crd/standard/gateway.networking.k8s.io_{gateways,httproutes}.yaml
take sigs.k8s.io/gateway-api-inference-extension@v1.1.0 h1:MqRYk+3LNUWB0MbTgTZVhmJGNDTvm8l3ze4MOlzR7MU= \
    config/crd/bases/inference.networking.k8s.io_inferencepools.yaml
take istio.io/api@v1.27.0 h1:KU1DeyIvZkY2k0pF9ZY+6D0ZVB1ZgvimaPkM55NVRWk= kubernetes/customresourcedefinitions.gen.yaml
echo "$stamp" >"$out/.stamp"
