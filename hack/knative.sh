#!/usr/bin/env bash
# Builds Knative's queue-proxy, which is in each pod of a function of Knative, for the tests, from the pinned version
# (tests/platforms/knative) into build/knative; or does nothing when it is there already. About 2 minutes the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly module=tests/platforms/knative
readonly bin=$PWD/build/knative
version=$(sed -n 's|.*knative.dev/serving \(v[0-9.]*\).*|\1|p' "$module/go.mod")
readonly version

stamp=$(cat "$module/go.mod" "$module/go.sum" "$0" | cksum)
[ ! -x "$bin/queue" ] || [ "$(cat "$bin/.stamp" 2>/dev/null || true)" != "$stamp" ] || exit 0

need go "Go 1.26 or newer: https://go.dev/dl/"
go_version=$(cd "$module" && go env GOVERSION) || fail "this Go can't build Knative; install Go 1.26 or newer: https://go.dev/dl/"
say "knative: building queue-proxy $version ($go_version)"
mkdir -p "$bin"
started=$SECONDS
log=$bin/build.log
(cd "$module" && CGO_ENABLED=0 go build -v "${go_flags[@]}" -ldflags "-s -w" -o "$bin/new" knative.dev/serving/cmd/queue) >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; fail "queue-proxy did not build; the whole log is $log"; }
mv -f "$bin/new" "$bin/queue"
echo "$stamp" >"$bin/.stamp"
say "knative: built in $((SECONDS - started)) s"
