#!/usr/bin/env bash
# Builds the pinned registry of OCI artifacts (tests/registry) into build/registry, or does nothing when it is there already.
# About 2 minutes the first time, seconds afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly module=tests/registry
readonly bin=$PWD/build/registry
version=$(sed -n 's|.*github.com/distribution/distribution/v3 \(v[0-9.]*\).*|\1|p' "$module/go.mod")
readonly version

stamp=$(cat "$module/go.mod" "$module/go.sum" "$module/main.go" "$0" | cksum)
[ ! -x "$bin/registry" ] || [ "$(cat "$bin/.stamp" 2>/dev/null || true)" != "$stamp" ] || exit 0

need go "Go 1.26 or newer: https://go.dev/dl/"
go_version=$(cd "$module" && go env GOVERSION) || fail "this Go can't build the registry; install Go 1.26 or newer: https://go.dev/dl/"
say "registry: building Distribution $version ($go_version)"
mkdir -p "$bin"
started=$SECONDS
log=$bin/build.log
(cd "$module" && go build -v "${go_flags[@]}" -ldflags "-s -w" -o "$bin/new" .) >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; fail "the registry did not build; the whole log is $log"; }
mv -f "$bin/new" "$bin/registry"
echo "$stamp" >"$bin/.stamp"
say "registry: built in $((SECONDS - started)) s"
