#!/usr/bin/env bash
# Makes a venv with NumPy in build/numpy, for the tests of the pool's Python package, or does nothing when it is there already
# (17 MB from PyPI).
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly version=2.2.6
readonly venv=$PWD/build/numpy

[ ! -e "$venv/.installed-$version" ] || exit 0
need python3 "Python 3.11 or newer"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$(python3 --version) is too old for the tests of the pool's Python package. Install Python 3.11 or newer"
say "numpy: $version from PyPI into build/numpy, 17 MB"
rm -rf "$venv"
python3 -m venv "$venv" || fail "python3 can't make a venv. On Debian: apt-get install python3-venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "numpy==$version" ||
    fail "pip can't install numpy==$version"
touch "$venv/.installed-$version"
