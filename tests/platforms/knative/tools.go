//go:build tools

package main

// queue-proxy, which Knative puts into each pod.
import _ "knative.dev/serving/cmd/queue"
