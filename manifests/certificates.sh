#!/bin/bash
# Makes the certificates of the extender's and the router's ports for collectors' streams and of the pool's broker, each with a key of its
# own, and the key of the broker's tickets, and says them as objects for kubectl:
#
#   manifests/certificates.sh DIR | kubectl apply -f -
#
# DIR keeps the authority (ca.key: keep it secret, and away from the cluster) and the key of tickets. Run again, before the certificates'
# year is over, it makes new certificates of the same authority; running programs take them up by themselves.
# NAMESPACE says where kube-fpga is, if not in the namespace kube-fpga.
# CLIENT_NAMESPACES="team-a team-b" also makes the ConfigMap fpga-pool in these, by which their pods know the broker (pool.clientNamespaces).
# CLUSTER_SCHEDULER=yes also makes what scheduler.mode cluster of the chart needs: a Secret for the extender's port for kube-scheduler, and in
# DIR kube-scheduler.crt and kube-scheduler.key, which kube-scheduler shows, of an authority of their own (scheduler-ca.key).
# NAMES adds names to the extender's certificate, for example NAMES=IP:10.0.0.1,DNS:extender.example.
set -euo pipefail
[ $# = 1 ] || { sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 2; }
command -v openssl >/dev/null || { echo "error: openssl is missing; install the package openssl" >&2; exit 1; }
dir=$1
namespace=${NAMESPACE:-kube-fpga}
umask 077
mkdir -p "$dir"
cd "$dir"
# In one line, as GNU's base64 -w0 writes it and those of BSD and macOS do not.
base64_of() { openssl base64 -A -in "$1"; }
key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }
authority() {
    [ -e "$1.key" ] && return
    key "$1.key"
    openssl req -x509 -key "$1.key" -out "$1.crt" -days 3650 -subj "/CN=$2" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
}
authority ca "kube-fpga streams"
# certificate NAME SERVICE MORE-NAMES: NAME.crt and NAME.key of a service
certificate() {
    local name=$1 host=$2.$namespace.svc
    key "$name.key.new"
    openssl req -new -key "$name.key.new" -subj "/CN=$2" -out "$name.csr"
    openssl x509 -req -in "$name.csr" -CA ca.crt -CAkey ca.key -set_serial "0x$(openssl rand -hex 16)" -days 365 -out "$name.crt.new" \
        -extfile <(echo "subjectAltName=DNS:$host,DNS:$host.cluster.local,DNS:localhost,IP:127.0.0.1${3:+,$3}
basicConstraints=critical,CA:FALSE
extendedKeyUsage=serverAuth") 2>/dev/null
    mv "$name.key.new" "$name.key"
    mv "$name.crt.new" "$name.crt"
    rm "$name.csr"
}
# secret NAME FILE: the Secret of such a certificate
secret() {
    cat <<EOF
apiVersion: v1
kind: Secret
metadata: { name: $1, namespace: $namespace }
data:
  tls.crt: $(base64_of "$2.crt")
  tls.key: $(base64_of "$2.key")
---
EOF
}
# authorities NAME NAMESPACE: the ConfigMap by which clients know the services
authorities() {
    cat <<EOF
apiVersion: v1
kind: ConfigMap
metadata: { name: $1, namespace: $2 }
data:
  ca.crt: |
$(sed 's/^/    /' ca.crt)
---
EOF
}
certificate tls fpga-scheduler-extender "${NAMES:-}"
certificate router fpga-endpoint-picker
certificate pool fpga-pool
if [ "${CLUSTER_SCHEDULER:-no}" = yes ]; then
    authority scheduler-ca "kube-fpga schedulers"
    key kube-scheduler.key.new
    openssl req -new -key kube-scheduler.key.new -subj "/CN=kube-scheduler" -out kube-scheduler.csr
    openssl x509 -req -in kube-scheduler.csr -CA scheduler-ca.crt -CAkey scheduler-ca.key -set_serial "0x$(openssl rand -hex 16)" \
        -days 365 -out kube-scheduler.crt.new -extfile <(echo "subjectAltName=DNS:kube-scheduler
basicConstraints=critical,CA:FALSE
extendedKeyUsage=clientAuth") 2>/dev/null
    mv kube-scheduler.key.new kube-scheduler.key
    mv kube-scheduler.crt.new kube-scheduler.crt
    rm kube-scheduler.csr
fi
[ -e ticket-key ] || openssl rand -hex 32 >ticket-key
secret fpga-extender-stream-tls tls
secret fpga-router-stream-tls router
secret fpga-pool-tls pool
authorities fpga-stream-ca "$namespace"
for client in ${CLIENT_NAMESPACES:-}; do authorities fpga-pool "$client"; done
cat <<EOF
apiVersion: v1
kind: Secret
metadata: { name: fpga-pool-ticket-key, namespace: $namespace }
data:
  key: $(base64_of ticket-key)
EOF
[ "${CLUSTER_SCHEDULER:-no}" = yes ] || exit 0
cat <<EOF
---
apiVersion: v1
kind: Secret
metadata: { name: fpga-extender-tls, namespace: $namespace }
data:
  tls.crt: $(base64_of tls.crt)
  tls.key: $(base64_of tls.key)
  client-ca.crt: $(base64_of scheduler-ca.crt)
EOF
