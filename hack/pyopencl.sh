#!/usr/bin/env bash
# `make pyopencl`: the test suite of PyOpenCL, natively and through the remote library, compared test by test.
#
#   RUNTIME=pocl|intel-cpu|intel-fpga   the runtime (pocl)
#   TESTS="test_wrapper.py ..."         which files of the suite [default: test_wrapper.py test_enqueue_copy.py
#                                       test_array.py test_clmath.py test_arrays_in_structs.py]
#   MANAGER=PATH                        the device manager [default: builds target/release/fpga-device-manager]
#   LIMIT=SECONDS                       how long either way may take; what wasn't run by then counts as missing [3600]
#
# Installs PyOpenCL from PyPI into build/pyopencl. Exit status 1 where a test passes natively and fails remotely.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly version=2026.1.4
readonly folder=$PWD/build/pyopencl
readonly runtime=${RUNTIME:-pocl}
readonly intel=$PWD/build/intel-opencl
readonly limit=${LIMIT:-3600}
readonly manager=${MANAGER:-$PWD/target/release/fpga-device-manager}
read -ra tests <<<"${TESTS:-test_wrapper.py test_enqueue_copy.py test_array.py test_clmath.py test_arrays_in_structs.py}"

if [ ! -e "$folder/.installed-$version" ]; then
    need python3 "Python 3, on Debian: apt-get install python3 python3-venv"
    say "pyopencl: installing $version from PyPI"
    python3 -m venv "$folder"
    "$folder/bin/pip" install -q "pyopencl==$version" pytest numpy mako
    mkdir -p "$folder/src"
    "$folder/bin/pip" download -q --no-deps --no-binary pyopencl -d "$folder/src" "pyopencl==$version"
    tar -xzf "$folder/src/pyopencl-$version.tar.gz" -C "$folder/src"
    touch "$folder/.installed-$version"
fi
[ -n "${MANAGER:-}" ] || cargo build --release -p fpga-device-manager -p fpga-opencl-icd

suite() { # WAY COMMAND...
    local way=$1
    shift
    say "pyopencl: $runtime, $way"
    rm -f "$folder/$runtime-$way.xml"
    # Of the suite only what fails is interesting, and a failure is compared below.
    (cd "$folder/src/pyopencl-$version/test" &&
        XDG_CACHE_HOME=$folder/cache-$way PYOPENCL_NO_CACHE=1 "$@" \
            timeout --signal INT --kill-after 60 "$limit" "$folder/bin/python" -m pytest -q -p no:cacheprovider \
            --junitxml="$folder/$runtime-$way.xml" "${tests[@]}" | tail -n 1) || true
}

case $runtime in
    pocl) suite native env OCL_ICD_VENDORS=/etc/OpenCL/vendors/pocl.icd ;;
    *) suite native env OCL_ICD_VENDORS="$intel/icd/$runtime" LD_LIBRARY_PATH="$intel/lib" ;;
esac
suite remote env FPGA_INTEL_OPENCL="$intel/lib" "$manager" exec --runtime "$runtime" --

python3 - "$folder/$runtime-native.xml" "$folder/$runtime-remote.xml" <<'PY'
import re
import sys
import xml.etree.ElementTree as tree


def results(path):
    """State by test; the names of platforms and devices in parameters are the same, but for our mark in none."""
    states = {}
    for case in tree.parse(path).iter("testcase"):
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        name = f"{case.get('classname')}.{case.get('name')}"
        states[re.sub(r"0x[0-9a-f]+", "", name)] = kinds.pop() if kinds else "passed"
    return states


native, remote = (results(path) for path in sys.argv[1:])
passed = [name for name, state in native.items() if state == "passed"]
# A test skips itself where a device doesn't claim what it is about, such as shared virtual memory.
skipped = [name for name in passed if remote.get(name) == "skipped"]
worse = [name for name in passed if remote.get(name) not in ("passed", "skipped")]
for name in skipped + worse:
    print(f"  {name}: passed natively, {remote.get(name, 'missing')} remotely")
print(f"pyopencl: {len(native)} tests, {len(passed)} pass natively; of these {len(worse)} fail and {len(skipped)} are skipped remotely")
sys.exit(bool(worse) or not passed)
PY
