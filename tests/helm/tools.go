//go:build tools

// Package helm names the program that this module pins, so that go.sum covers all it needs.
package helm

import (
	_ "helm.sh/helm/v4/cmd/helm"
)
