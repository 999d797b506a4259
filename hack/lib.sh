# What the set-up scripts share; sourced, never run.

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
