#!/usr/bin/env bash
# Builds what the tests' real nodes run (tests/node) into build/node/bin, or does nothing when it is there already: the
# pinned kubelet, and containerd with ctr and its shim for runc. About 4 minutes the first time beside the control plane
# (hack/control-plane.sh, whose packages kubelet shares), seconds afterwards. runc and the CNI plugins are the system's.
#
#   hack/node.sh           build, and install runc and the CNI plugins (as root on Debian; else it names the command)
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

# A kubelet must not be newer than its API server.
[ -z "${KUBERNETES_VERSION:-}" ] || fail "real nodes have the newest pinned Kubernetes; leave KUBERNETES_VERSION=$KUBERNETES_VERSION out"

readonly build=$PWD/build/node
readonly bin=$build/bin
readonly debian_packages=(runc containernetworking-plugins)
kubernetes=$(sed -n 's|^require k8s.io/kubernetes \(v[0-9.]*\).*|\1|p' tests/node/kubelet/go.mod)
readonly kubernetes
# Without these the kubelet calls itself v0.0.0-master, and so does its node.
readonly kubelet_flags="-s -w -X k8s.io/component-base/version.gitVersion=$kubernetes -X k8s.io/client-go/pkg/version.gitVersion=$kubernetes"

# The folders where distributions put the CNI plugins.
cni_plugins() { ls -d /usr/lib/cni/ptp /opt/cni/bin/ptp /usr/libexec/cni/ptp 2>/dev/null | head -n 1; }

missing_packages() {
    command -v runc >/dev/null || echo runc
    [ -n "$(cni_plugins)" ] || echo "the CNI plugins"
}

# build_programs MODULE "PROGRAM ..." GO-BUILD-ARGUMENT ...: builds the programs unless they are there and were made
# from the same pins and flags.
build_programs() {
    local name=$1 programs=$2
    shift 2
    local module=tests/node/${name%%-*} stamp=$bin/.stamp-$name
    local from
    from=$({ cat "$module/go.mod" "$module/go.sum"; printf '%s\n' "$@"; } | cksum)
    local program whole=yes
    for program in $programs; do [ -x "$bin/$program" ] || whole=no; done
    [ $whole = no ] || [ "$(cat "$stamp" 2>/dev/null || true)" != "$from" ] || return 0

    need go "Go 1.26 or newer: https://go.dev/dl/"
    local go_version
    go_version=$(cd "$module" && go env GOVERSION) || fail "this Go can't build $name; install Go 1.26 or newer: https://go.dev/dl/"
    say "node: building $programs ($go_version)"
    local new=$build/new log=$build/build-$name.log started=$SECONDS
    rm -rf "$new"
    mkdir -p "$new"
    (cd "$module" && exec go build -v "${go_flags[@]}" -o "$new/" "$@") >"$log" 2>&1 &
    local job=$!
    # The trap is run outside of this function, where `job` is unknown.
    # shellcheck disable=SC2064
    trap "kill $job 2>/dev/null || true" EXIT
    while kill -0 $job 2>/dev/null; do
        sleep 1
        local elapsed=$((SECONDS - started))
        if [ $((elapsed % 15)) -eq 0 ]; then
            say "node: $elapsed s, $(grep -c '^[a-z]' "$log" || true) packages compiled"
        fi
    done
    wait $job || { tail -n 20 "$log" >&2; fail "$programs did not build; the whole log is $log"; }
    trap - EXIT
    for program in $programs; do mv -f "$new/$program" "$bin/$program"; done
    rmdir "$new"
    echo "$from" >"$stamp"
    say "node: built in $((SECONDS - started)) s"
}

mkdir -p "$bin"
install_debian node missing_packages "runc and the CNI plugins" "${debian_packages[@]}"
build_programs kubelet "kubelet" -ldflags "$kubelet_flags" k8s.io/kubernetes/cmd/kubelet

readonly containerd=github.com/containerd/containerd/v2
readonly version_flags="-s -w -X $containerd/version.Version=$(sed -n "s|^require $containerd \(v[0-9.]*\).*|\1|p" tests/node/containerd/go.mod)"
export CGO_ENABLED=0
build_programs containerd "containerd ctr" -ldflags "$version_flags" \
    -tags "no_btrfs no_devmapper no_zfs urfave_cli_no_docs" "$containerd/cmd/containerd" "$containerd/cmd/ctr"
build_programs containerd-shim "containerd-shim-runc-v2" -ldflags "$version_flags -extldflags '-static'" \
    -tags "no_grpc urfave_cli_no_docs" "$containerd/cmd/containerd-shim-runc-v2"
