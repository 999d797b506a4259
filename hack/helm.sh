#!/usr/bin/env bash
# Builds the pinned Helm (tests/helm) into build/helm, or does nothing when it is there already. About 3 minutes the first time,
# seconds afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly module=tests/helm
readonly bin=$PWD/build/helm
version=$(sed -n 's|^require helm.sh/helm/v4 \(v[0-9.]*\).*|\1|p' "$module/go.mod")
readonly version

stamp=$(cat "$module/go.mod" "$module/go.sum" "$0" | cksum)
[ ! -x "$bin/helm" ] || [ "$(cat "$bin/.stamp" 2>/dev/null || true)" != "$stamp" ] || exit 0

need go "Go 1.26 or newer: https://go.dev/dl/"
go_version=$(cd "$module" && go env GOVERSION) || fail "this Go can't build Helm; install Go 1.26 or newer: https://go.dev/dl/"
say "helm: building $version ($go_version)"
mkdir -p "$bin"
started=$SECONDS
log=$bin/build.log
# Without it Helm calls itself by the version that its sources were prepared for.
flags="-s -w -X helm.sh/helm/v4/internal/version.version=$version"
(cd "$module" && go build -v "${go_flags[@]}" -ldflags "$flags" -o "$bin/new" helm.sh/helm/v4/cmd/helm) >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; fail "Helm did not build; the whole log is $log"; }
mv -f "$bin/new" "$bin/helm"
echo "$stamp" >"$bin/.stamp"
say "helm: built in $((SECONDS - started)) s"
