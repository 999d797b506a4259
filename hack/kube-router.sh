#!/usr/bin/env bash
# Builds the pinned kube-router (tests/kube-router) into build/kube-router, or does nothing when it is there already: the
# controller that enforces NetworkPolicies in `make test-network-policies`. About 2 minutes the first time, seconds
# afterwards. iptables and ipset, which it calls, are the system's.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly module=tests/kube-router
readonly bin=$PWD/build/kube-router

missing_packages() {
    local program
    for program in iptables ipset ip; do command -v $program >/dev/null || echo $program; done
}

install_debian kube-router missing_packages "iptables, ipset and ip" iptables ipset iproute2

stamp=$(cat "$module/go.mod" "$module/go.sum" "$0" | cksum)
[ ! -x "$bin/kube-router" ] || [ "$(cat "$bin/.stamp" 2>/dev/null || true)" != "$stamp" ] || exit 0

need go "Go 1.26 or newer: https://go.dev/dl/"
go_version=$(cd "$module" && go env GOVERSION) || fail "this Go can't build kube-router; install Go 1.26 or newer: https://go.dev/dl/"
say "kube-router: building $(sed -n 's|^require .*/kube-router/v2 ||p' "$module/go.mod") ($go_version)"
mkdir -p "$bin"
started=$SECONDS
log=$bin/build.log
(cd "$module" && CGO_ENABLED=0 go build -v "${go_flags[@]}" -ldflags "-s -w" -o "$bin/new" \
    github.com/cloudnativelabs/kube-router/v2/cmd/kube-router) >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; fail "kube-router did not build; the whole log is $log"; }
mv -f "$bin/new" "$bin/kube-router"
echo "$stamp" >"$bin/.stamp"
say "kube-router: built in $((SECONDS - started)) s"
