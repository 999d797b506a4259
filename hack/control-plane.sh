#!/usr/bin/env bash
# Builds the pinned Kubernetes control plane (tests/control-plane) into build/control-plane/bin, or does nothing when it is
# there already. About 6 minutes on two cores and 2.4 GB of Go's build cache the first time, seconds afterwards.
#
#   hack/control-plane.sh           the control plane and kubectl
#   hack/control-plane.sh servers   without kubectl, which the demo does not call
#   KUBERNETES_VERSION=1.36 hack/control-plane.sh
#                                   an older version (tests/control-plane/1.36.mod), into build/control-plane-1.36/bin
#
# A program that lies in the folder KUBEBUILDER_ASSETS (envtest's convention) is taken from there, and etcd from the
# system's packages where it is new enough.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/lib.sh

readonly module=tests/control-plane
# Of the modules of tests/control-plane each pins another version.
pins=go
[ -z "${KUBERNETES_VERSION:-}" ] || pins=$KUBERNETES_VERSION
[ -f "$module/$pins.mod" ] || fail "KUBERNETES_VERSION=$pins is not pinned; leave it out for the newest, or write one of: $(cd "$module" && echo [0-9]*.mod | sed 's/[.]mod//g')"
readonly build=$PWD/build/control-plane${KUBERNETES_VERSION:+-$KUBERNETES_VERSION}
readonly bin=$build/bin
version=$(sed -n 's|^\tk8s.io/kubernetes \(v[^ ]*\)$|\1|p' "$module/$pins.mod")
readonly version
packages=(
    kube-apiserver=k8s.io/kubernetes/cmd/kube-apiserver
    kube-controller-manager=k8s.io/kubernetes/cmd/kube-controller-manager
    kube-scheduler=k8s.io/kubernetes/cmd/kube-scheduler
    kubectl=k8s.io/kubernetes/cmd/kubectl
    etcd=go.etcd.io/etcd/server/v3
)

case ${1:-} in
    '') ;;
    servers) unset 'packages[3]' ;;
    *) fail "hack/control-plane.sh $1 is unknown; write hack/control-plane.sh or hack/control-plane.sh servers" ;;
esac

mkdir -p "$bin"

# What the binaries were made from: a change of any pin builds them again.
stamp=$(cat "$module/$pins.mod" "$module/$pins.sum" "$0" | cksum)
if [ "$(cat "$bin/.stamp" 2>/dev/null || true)" != "$stamp" ]; then
    for entry in "${packages[@]}"; do rm -f "$bin/${entry%%=*}"; done
    echo "$stamp" >"$bin/.stamp"
fi

# Whether the system has an etcd of the minor version that the control plane is built with, or a newer one.
system_etcd() {
    local wanted have
    wanted=$(sed -n 's|^\tgo.etcd.io/etcd/server/v3 v\([0-9]*\.[0-9]*\).*|\1|p' "$module/$pins.mod")
    have=$(etcd --version 2>/dev/null | sed -n 's/^etcd Version: //p')
    [ -n "$wanted" ] && [ -n "$have" ] && printf '%s\n' "$wanted" "$have" | sort -C -V
}

missing=()
for entry in "${packages[@]}"; do
    name=${entry%%=*}
    if [ -n "${KUBEBUILDER_ASSETS:-}" ] && [ -x "$KUBEBUILDER_ASSETS/$name" ]; then
        ln -sfn "$(realpath "$KUBEBUILDER_ASSETS/$name")" "$bin/$name"
        say "control plane: $name from KUBEBUILDER_ASSETS"
    elif [ "$name" = etcd ] && { [ -L "$bin/$name" ] || [ ! -x "$bin/$name" ]; } && system_etcd; then
        ln -sfn "$(command -v etcd)" "$bin/$name"
        say "control plane: $name from the system's packages"
    elif [ -L "$bin/$name" ] || [ ! -x "$bin/$name" ]; then
        missing+=("$entry")
    fi
done
[ ${#missing[@]} -gt 0 ] || exit 0

need go "Go 1.26 or newer: https://go.dev/dl/"
go_version=$(cd "$module" && go env GOVERSION) || fail "this Go can't build the control plane; install Go 1.26 or newer: https://go.dev/dl/"

names=("${missing[@]%%=*}")
say "control plane: building ${names[*]} ($version, $go_version); about 6 minutes the first time"
new=$build/new
log=$build/build.log
rm -rf "$new"
mkdir -p "$new"
# Without these the programs call themselves v0.0.0-master.
flags="-s -w -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/client-go/pkg/version.gitVersion=$version"
(cd "$module" && exec go build -v -modfile="$pins.mod" "${go_flags[@]}" -ldflags "$flags" -o "$new/" "${missing[@]#*=}") >"$log" 2>&1 &
compiler=$!
trap 'kill $compiler 2>/dev/null || true' EXIT
started=$SECONDS
while kill -0 $compiler 2>/dev/null; do
    sleep 1
    elapsed=$((SECONDS - started))
    if [ $((elapsed % 15)) -eq 0 ]; then
        say "control plane: $elapsed s, $(grep -c '^[a-z]' "$log" || true) packages compiled"
    fi
done
wait $compiler || { tail -n 20 "$log" >&2; fail "the control plane did not build; the whole log is $log"; }
trap - EXIT

# `go build` names a program after its import path, and etcd's ends in server/v3.
[ ! -e "$new/server" ] || mv "$new/server" "$new/etcd"
for name in "${names[@]}"; do mv -f "$new/$name" "$bin/$name"; done
rmdir "$new"
say "control plane: built in $((SECONDS - started)) s"
