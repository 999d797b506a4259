#!/usr/bin/env bash
# Installs Chromium for the tests of the live page (Debian's package, 100 MB), or does nothing when one is there.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

missing_chromium() {
    command -v chromium chromium-browser google-chrome >/dev/null || echo chromium
}
install_debian chromium missing_chromium "Chromium" chromium
