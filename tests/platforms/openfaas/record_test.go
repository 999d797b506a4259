// Prints what OpenFaaS' provider for Kubernetes, faas-netes, makes of the functions in STACK: its own functions, called as its deploy
// handler calls them, with the settings of OpenFaaS' chart. This file is copied into pkg/handlers of faas-netes: see ../README.md.
package handlers

import (
	"fmt"
	"os"
	"testing"

	"github.com/openfaas/faas-netes/pkg/k8s"
	types "github.com/openfaas/faas-provider/types"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"
)

// stack is the part of a stack.yml that the examples use. faas-cli sends it on as it is.
type stack struct {
	Functions map[string]struct {
		Image       string            `json:"image"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
		Environment map[string]string `json:"environment"`
	} `json:"functions"`
}

func TestRecord(t *testing.T) {
	text, err := os.ReadFile(os.Getenv("STACK"))
	if err != nil {
		t.Fatal(err)
	}
	var stack stack
	if err := yaml.Unmarshal(text, &stack); err != nil {
		t.Fatal(err)
	}
	// As main.go has them, and values.yaml of the chart.
	probe := &k8s.ProbeConfig{InitialDelaySeconds: 2, TimeoutSeconds: 1, PeriodSeconds: 2}
	config := k8s.DeploymentConfig{RuntimeHTTPPort: 8080, HTTPProbe: true, ReadinessProbe: probe, LivenessProbe: probe}
	factory := k8s.NewFunctionFactory(fake.NewSimpleClientset(), config, nil)
	for name, function := range stack.Functions {
		request := types.FunctionDeployment{
			Service:     name,
			Image:       function.Image,
			Labels:      &function.Labels,
			Annotations: &function.Annotations,
			EnvVars:     function.Environment,
		}
		deployment, err := makeDeploymentSpec(request, nil, factory)
		if err != nil {
			t.Fatal(err)
		}
		deployment.APIVersion, deployment.Kind = "apps/v1", "Deployment"
		service, err := makeServiceSpec(request, factory)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range []any{deployment, service} {
			text, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("---\n%s", text)
		}
	}
}
