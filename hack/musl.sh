#!/usr/bin/env bash
# Puts the loader of musl, the C library of Alpine, into build/musl for a test, or does nothing when it is there already: from
# Debian's package musl (0.4 MB), which is unpacked and not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly loader=ld-musl-$(uname -m).so.1

[ ! -x "build/musl/$loader" ] || exit 0
mkdir -p build/musl
unpack_debian musl musl "$PWD/build/musl" "lib/$loader"
