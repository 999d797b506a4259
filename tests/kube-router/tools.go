//go:build tools

// Package kuberouter names the program that this module pins, so that go.sum covers all it needs.
package kuberouter

import (
	_ "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"
)
