#!/usr/bin/env bash
# Puts promtool, which checks rules for Prometheus, into build/promtool, or does nothing when one is there already: that of the
# system, or of Debian's package prometheus (22 MB), which is unpacked and not installed. PROMTOOL=PATH takes another one.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly bin=$PWD/build/promtool

mkdir -p "$bin"
if [ -n "${PROMTOOL:-}" ]; then
    [ -x "$PROMTOOL" ] || fail "PROMTOOL=$PROMTOOL is no program; write the path of a promtool"
    ln -sfn "$(realpath "$PROMTOOL")" "$bin/promtool"
    exit 0
fi
[ ! -x "$bin/promtool" ] || exit 0
if system=$(command -v promtool); then
    ln -sfn "$system" "$bin/promtool"
    exit 0
fi
unpack_debian promtool prometheus usr/bin/promtool "$bin"
