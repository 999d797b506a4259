# What the set-up scripts share; sourced, never run.

say() { printf '%s\n' "$*"; }

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# need PROGRAM WHAT-TO-INSTALL
need() { command -v "$1" >/dev/null 2>&1 || fail "$1 is missing. Install $2"; }
