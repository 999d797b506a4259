#!/usr/bin/env bash
# Runs a command in a network of its own, as root: what it does with rules for packets is gone with it. There are loopback
# addresses, and one for nodes on the interface `nowhere`, by which a default route leads nowhere.
#
#   hack/own-network.sh COMMAND [ARGUMENT ...]
set -euo pipefail

if [ "${FPGA_OWN_NETWORK:-}" != yes ]; then
    FPGA_OWN_NETWORK=yes exec unshare --net --mount -- "$0" "$@"
fi
unset FPGA_OWN_NETWORK
ip link set lo up
# The pair's other end has no address: what is sent there is lost.
ip link add nowhere type veth peer name dropped
ip link set dropped up
ip link set nowhere up
ip address add 192.0.2.1/24 dev nowhere
ip route add default via 192.0.2.254
# There is no DNS server, which whoever asks hears at once.
mount --bind /dev/null /etc/resolv.conf
exec "$@"
