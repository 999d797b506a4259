#!/usr/bin/env bash
# Real applications, natively and through the remote library: each must print the same. Their sources are in tests/applications.
#
#   RUNTIMES="..."       which runtimes [default: pocl intel-cpu]
#   APPLICATIONS="..."   which applications [default: all files of tests/applications]
#   TIMEOUT=SECONDS      of one run (600)
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly runtimes=${RUNTIMES:-pocl intel-cpu} intel=$PWD/build/intel-opencl out=$PWD/build/applications sources=$PWD/tests/applications
readonly packages=(pyopencl==2026.1.4 lightgbm==4.7.0 opencv-python-headless==5.0.0.93 openmm==8.6.1 reikna==0.9.0) jocl=2.0.5
export FPGA_INTEL_OPENCL=$intel/lib
# OpenCV and LightGBM take no processor by themselves.
export OPENCV_OPENCL_DEVICE=:ALL:

missing() {
    local program
    for program in ffmpeg mvn javac; do command -v "$program" >/dev/null || echo "$program"; done
    [ -e /usr/include/clblast_c.h ] || echo CLBlast
}

set_up() {
    install_debian test-applications missing "FFmpeg, Maven, a JDK, and CLBlast" ffmpeg maven default-jdk-headless libclblast-dev
    mkdir -p "$out/results" "$out/icd"
    cp /etc/OpenCL/vendors/pocl.icd "$out/icd/"
    if [ "$(cat "$out/.packages" 2>/dev/null)" != "${packages[*]}" ]; then
        say "test-applications: ${packages[*]} from PyPI into build/applications, 500 MB"
        rm -rf "$out/venv"
        python3 -m venv "$out/venv" || fail "python3 can't make a venv. On Debian: apt-get install python3-venv"
        "$out/venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" || fail "pip can't install ${packages[*]}"
        echo "${packages[*]}" >"$out/.packages"
    fi
    if [ ! -e "$out/jocl-$jocl.jar" ]; then
        mvn -q -B dependency:copy "-Dartifact=org.jocl:jocl:$jocl" "-DoutputDirectory=$out" || fail "mvn can't get JOCL $jocl"
    fi
    cc -O2 -o "$out/clblast_product" "$sources/clblast_product.c" -lclblast -lOpenCL || fail "clblast_product.c does not compile"
}

# The command of an application, one word a line.
command_of() {
    case $1 in
        *.py) printf '%s\n' "$out/venv/bin/python" "$sources/$1" ;;
        *.java) printf '%s\n' java -cp "$out/jocl-$jocl.jar" "$sources/$1" ;;
        *.c) printf '%s\n' "$out/${1%.c}" ;;
        *) printf '%s\n' "$sources/$1" ;;
    esac
}

# run RESULT COMMAND...: its output goes to RESULT, and its seconds to RESULT.seconds.
run() {
    local result=$1 start=$SECONDS
    shift
    timeout "${TIMEOUT:-600}" "$@" >"$result" 2>"$result.log" || return 1
    echo $((SECONDS - start)) >"$result.seconds"
}

# compare RUNTIME APPLICATION: prints a row.
compare() {
    local runtime=$1 application=$2 result=$out/results/$1-$2 native words
    mapfile -t words < <(command_of "$application")
    # A folder, because some loaders take no file.
    case $runtime in
        pocl) native=(OCL_ICD_VENDORS="$out/icd") ;;
        *) native=(OCL_ICD_VENDORS="$intel/icd/$runtime" LD_LIBRARY_PATH="$intel/lib") ;;
    esac
    rm -f "$result".*
    if ! run "$result.native" env "${native[@]}" "${words[@]}"; then
        printf '  %-10s %-20s FAILS natively: %s.native.log\n' "$runtime" "$application" "$result"
        return 1
    elif ! run "$result.remote" target/debug/fpga-device-manager exec --runtime "$runtime" -- "${words[@]}"; then
        printf '  %-10s %-20s FAILS: %s.remote.log\n' "$runtime" "$application" "$result"
        return 1
    elif ! cmp -s "$result.native" "$result.remote"; then
        printf '  %-10s %-20s DIFFERS:\n' "$runtime" "$application"
        diff "$result.native" "$result.remote" | sed 's/^/    /'
        return 1
    else
        printf '  %-10s %-20s the same, %s s natively, %s s remotely\n' "$runtime" "$application" \
            "$(cat "$result.native.seconds")" "$(cat "$result.remote.seconds")"
    fi
}

set_up
status=0
for runtime in $runtimes; do
    for application in ${APPLICATIONS:-$(ls "$sources")}; do
        # Natively, its product of matrices is CL_OUT_OF_RESOURCES.
        [ "$runtime $application" != "intel-cpu reikna_fft.py" ] || continue
        compare "$runtime" "$application" || status=1
    done
done
exit "$status"
