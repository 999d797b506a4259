//go:build tools

// Package kubelet names the program that this module pins, so that go.sum covers all it needs.
package kubelet

import (
	_ "k8s.io/kubernetes/cmd/kubelet"
)
