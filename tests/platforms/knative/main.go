// Prints the Deployment that Knative's controller makes of a Service: the controller's own functions, called as it calls them, with
// the configuration that Knative ships. Its arguments are the Service's file and the folder with Knative's ConfigMaps.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/configmap"
	v1 "knative.dev/serving/pkg/apis/serving/v1"
	configurations "knative.dev/serving/pkg/reconciler/configuration/resources"
	"knative.dev/serving/pkg/reconciler/revision/config"
	revisions "knative.dev/serving/pkg/reconciler/revision/resources"
	services "knative.dev/serving/pkg/reconciler/service/resources"
	"sigs.k8s.io/yaml"
)

// Knative's releases name the image of queue-proxy by its digest.
const queueImage = "gcr.io/knative-releases/knative.dev/serving/cmd/queue:v0.50.0"

func main() {
	if err := record(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func record(file, configMaps string) error {
	maps, err := read(configMaps)
	if err != nil {
		return err
	}
	store := config.NewStore(zap.NewNop().Sugar())
	store.WatchConfigs(configmap.NewStaticWatcher(maps...))
	ctx := store.ToContext(context.Background())

	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	first, _, _ := bytes.Cut(text, []byte("\n---\n"))
	service := &v1.Service{}
	if err := yaml.UnmarshalStrict(first, service); err != nil {
		return err
	}
	service.UID = "5e0b0c1e-0000-4000-8000-000000000001"
	service.SetDefaults(ctx)
	configuration := services.MakeConfiguration(service)
	configuration.UID = "5e0b0c1e-0000-4000-8000-000000000002"
	configuration.Generation = 1
	configuration.SetDefaults(ctx)
	revision := configurations.MakeRevision(ctx, configuration, time.Unix(0, 0))
	revision.UID = "5e0b0c1e-0000-4000-8000-000000000003"
	revision.SetDefaults(ctx)
	deployment, err := revisions.MakeDeployment(revision, store.Load())
	if err != nil {
		return err
	}
	deployment.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}
	// Where the Revision is missing, Kubernetes deletes what belongs to it.
	deployment.OwnerReferences = nil
	text, err = yaml.Marshal(deployment)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

// read returns the ConfigMaps in a folder, and those that other parts of Knative bring, without settings.
func read(folder string) ([]*corev1.ConfigMap, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	network := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config-network"}}
	maps := []*corev1.ConfigMap{network}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		one := &corev1.ConfigMap{}
		if err := yaml.Unmarshal(text, one); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		delete(one.Data, "_example")
		if one.Name == "config-deployment" {
			one.Data["queue-sidecar-image"] = queueImage
		}
		maps = append(maps, one)
	}
	return maps, nil
}
