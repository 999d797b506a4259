#!/usr/bin/env bash
# Puts prometheus, which the tests let scrape our programs, and promtool, which checks the chart's rules, into build/promtool, or does
# nothing when they are there already: those of the system, or of Debian's package prometheus (22 MB), which is unpacked and not
# installed. PROMTOOL=PATH takes another promtool, and the prometheus beside it.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly bin=$PWD/build/promtool

mkdir -p "$bin"
link() {
    local promtool=$1 prometheus
    prometheus=$(dirname "$promtool")/prometheus
    [ -x "$prometheus" ] || return 1
    ln -sfn "$promtool" "$bin/promtool"
    ln -sfn "$prometheus" "$bin/prometheus"
}
if [ -n "${PROMTOOL:-}" ]; then
    [ -x "$PROMTOOL" ] || fail "PROMTOOL=$PROMTOOL is no program; write the path of a promtool"
    link "$(realpath "$PROMTOOL")" || fail "there is no prometheus beside PROMTOOL=$PROMTOOL; write the path of a promtool of a whole Prometheus"
    exit 0
fi
[ ! -x "$bin/promtool" ] || [ ! -x "$bin/prometheus" ] || exit 0
if system=$(command -v promtool) && link "$(realpath "$system")"; then
    exit 0
fi
unpack_debian promtool prometheus "$bin" usr/bin/promtool usr/bin/prometheus
