#!/usr/bin/env bash
# Whether this machine can have the tests' real nodes (`make test-node`): says in one line why not, and exits with 3. What
# hack/node.sh can install or build counts as there.
set -euo pipefail
cd "$(dirname "$0")/.."

impossible() {
    printf 'real nodes are not possible here: %s\n' "$*"
    exit 3
}

[ "$(uname -s)" = Linux ] || impossible "this is $(uname -s); they need Linux"
[ "$(id -u)" = 0 ] || impossible "you are not root; run as root, or in a virtual machine"
for program in unshare nsenter mount setpriv; do
    command -v "$program" >/dev/null || impossible "$program is missing; install util-linux"
done
if ! command -v apt-get >/dev/null; then
    command -v runc >/dev/null || impossible "runc is missing; install it by your distribution's packages"
    for ptp in /usr/lib/cni/ptp /opt/cni/bin/ptp /usr/libexec/cni/ptp; do [ ! -x $ptp ] || cni=yes; done
    [ -n "${cni:-}" ] || impossible "the CNI plugins are missing; install them by your distribution's packages"
fi
command -v go >/dev/null || [ -x build/node/bin/kubelet ] || impossible "Go is missing, which builds the kubelet: https://go.dev/dl/"

# The hierarchies in which a node makes its cgroup, as tests/src/testbed/real_node/cgroup.rs finds them.
hierarchies=$(awk '$2 ~ "^/sys/fs/cgroup" && $3 ~ "^cgroup" { print $2 }' /proc/self/mounts)
[ -n "$hierarchies" ] || impossible "no cgroups are mounted below /sys/fs/cgroup"
for hierarchy in $hierarchies; do
    probe=$hierarchy/fpga-possible-$$
    mkdir "$probe" 2>/dev/null || impossible "no cgroup can be made in $hierarchy"
    rmdir "$probe"
done

unshare --mount --pid --fork --mount-proc sh -c 'mount -t tmpfs tmpfs /mnt && mount --make-rshared /' 2>/dev/null ||
    impossible "no namespaces with mounts and processes of their own can be made"
unshare --net true 2>/dev/null || impossible "no network namespace can be made"
if command -v ip >/dev/null; then
    unshare --net ip link add fpga-a type veth peer name fpga-b 2>/dev/null ||
        impossible "no pair of network interfaces (veth) can be made"
fi
