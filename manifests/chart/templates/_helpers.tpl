{{/* Labels of every object. */}}
{{- define "labels" -}}
app.kubernetes.io/part-of: kube-fpga
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* An image of ours: (dict "root" $ "name" NAME). */}}
{{- define "image" -}}
{{- with .root.Values.images }}{{ with .registry }}{{ . }}/{{ end }}kube-fpga/{{ $.name }}:{{ .tag }}{{ end }}
{{- end }}

{{/* Annotations for a Prometheus that looks for them: (dict "root" $ "port" PORT). */}}
{{- define "scrape" -}}
{{- if .root.Values.monitoring.annotations }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .port | quote }}
{{- end }}
{{- end }}

{{/* The head of a PrometheusRule: (dict "root" $ "name" NAME). */}}
{{- define "prometheusRule" -}}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "labels" .root | nindent 4 }}
{{- end }}

{{/* Where an alert's runbook is: (dict "root" $ "alert" NAME). */}}
{{- define "runbook" -}}
{{ .root.Values.monitoring.runbooks }}#{{ lower .alert }}
{{- end }}

{{/* What a container may not. */}}
{{- define "restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* The resources that mean that a pod is ours. */}}
{{- define "resources" -}}
{{- $names := list "fpga-scheduling.io/accelerated" }}
{{- range .Values.scheduler.vendorResources }}{{ $names = append $names (printf "fpga-scheduling.io/%s" .) }}{{ end }}
{{- toJson $names }}
{{- end }}

{{/* kube-scheduler's version. */}}
{{- define "kubeSchedulerVersion" -}}
{{- .Values.scheduler.version | default (regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" .Capabilities.KubeVersion.Version) }}
{{- end }}

{{/* How many nodes with boards our own scheduler judges for a pod. */}}
{{- define "mostJudged" -}}300{{- end }}

{{/* How many percent of all nodes make so many, and 100 percent in clusters that have no more, or of unknown size. */}}
{{- define "percentageOfNodesToScore" -}}
{{- $most := include "mostJudged" . | int }}
{{- $nodes := int .Values.scheduler.nodes }}
{{- if gt $nodes $most }}{{ div (add (mul 100 $most) $nodes -1) $nodes }}{{ else }}100{{ end }}
{{- end }}

{{/* The name of the extender's Service, for certificates. */}}
{{- define "extenderHost" -}}fpga-scheduler-extender.{{ .Release.Namespace }}.svc{{- end }}

{{/* The name of the Service by which collectors stream to pickers, likewise. */}}
{{- define "routerStreamsHost" -}}fpga-endpoint-picker.{{ .Release.Namespace }}.svc{{- end }}

{{/* The name of the Service of the pool's broker, likewise. */}}
{{- define "poolHost" -}}fpga-pool.{{ .Release.Namespace }}.svc{{- end }}

{{/* The audience of the tokens by which pods and device managers prove themselves to the broker. */}}
{{- define "poolAudience" -}}fpga-pool{{- end }}

{{/* How many slots the boards of a kind lend to the pool: (dict "root" $ "kind" KIND). */}}
{{- define "poolSlots" -}}
{{- if not .root.Values.pool.enabled }}0
{{- else if hasKey .kind "poolSlots" }}{{ .kind.poolSlots }}
{{- else }}{{ .root.Values.pool.slots }}{{ end }}
{{- end }}

{{/* The authority of the broker's certificate, in the namespaces that use the pool: (dict "root" $ "authorities" PEM). */}}
{{- define "poolAuthorities" -}}
{{- if .root.Values.pool.enabled }}
{{- range $namespace := .root.Values.pool.clientNamespaces }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: fpga-pool
  namespace: {{ $namespace }}
  labels:
    {{- include "labels" $.root | nindent 4 }}
data:
  ca.crt: |
    {{- $.authorities | trim | nindent 4 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whose pods may use the pool, in a rule of a NetworkPolicy. */}}
{{- define "poolClients" -}}
{{- with .Values.pool.clientNamespaces -}}
from:
  - namespaceSelector:
      matchExpressions:
        - key: kubernetes.io/metadata.name
          operator: In
          values: {{ toJson . }}
{{- end }}
{{- end }}

{{/* The broker's file of tenants (TOML). */}}
{{- define "poolTenants" -}}
[default]
{{- include "poolAllowance" .default }}
{{- range $name, $allowance := .namespaces }}
[tenants.{{ $name }}]
{{- include "poolAllowance" $allowance }}
{{- end }}
{{- end }}

{{- define "poolAllowance" -}}
{{- range $value, $key := dict "weight" "weight" "waitingJobs" "waiting-jobs" "waitingBytes" "waiting-bytes" "heldSlots" "held-slots" "guaranteedSlots" "guaranteed-slots" }}
{{- if hasKey $ $value }}
{{ $key }} = {{ index $ $value | int64 }}
{{- end }}
{{- end }}
{{- end }}

{{/* The DNS names in that certificate. */}}
{{- define "certificateNames" -}}
{{- $host := include "extenderHost" . }}
{{- $router := include "routerStreamsHost" . }}
{{- $pool := include "poolHost" . }}
{{- list $host (printf "%s.cluster.local" $host) $router (printf "%s.cluster.local" $router) $pool (printf "%s.cluster.local" $pool) | toJson }}
{{- end }}

{{/*
Whom a policy binds: who has the role of our collectors or node plugins, by whatever name, in whatever namespace. The role holds a
right that means nothing else; administrators, who hold all rights, may also delete the objects. A role may be bound in one namespace
only. (dict "right" RIGHT "object" RESOURCE "in" CEL-OF-THE-NAMESPACE-OR-NOTHING)
*/}}
{{- define "isBound" -}}
authorizer.group("fpga-scheduling.io").resource({{ .right | quote }}){{ .in }}.check("bind-to-node").allowed()
&& !authorizer.group("").resource({{ .object | quote }}){{ .in }}.check("delete").allowed()
{{- end }}

{{/* Lists of an object's metadata that a policy keeps as they are. */}}
{{- define "keepsMetadata" -}}
{{- range $index, $list := . }}{{ if $index }}
&& {{ end }}(has(object.metadata.{{ $list }}) ? object.metadata.{{ $list }} : []) == (has(oldObject.metadata.{{ $list }}) ? oldObject.metadata.{{ $list }} : []){{ end }}
{{- end }}

{{/* CEL: whether one of the containers in a list asks for a board. (dict "list" EXPRESSION "resources" JSON-LIST) */}}
{{- define "asksForBoard" -}}
{{ .list }}.exists(c, has(c.resources) && (
  has(c.resources.limits) && c.resources.limits.exists(k, k in {{ .resources }})
  || has(c.resources.requests) && c.resources.requests.exists(k, k in {{ .resources }})))
{{- end }}

{{/* CEL: whether a pod asks for boards by its label alone. */}}
{{- define "asksByLabel" -}}
has(object.metadata.labels) && "fpga-scheduling.io/accelerated" in object.metadata.labels
&& object.metadata.labels["fpga-scheduling.io/accelerated"].matches("^[1-9][0-9]?$")
{{- end }}

{{/* How long sessions may go on when the device managers of a kind of boards end, in seconds. */}}
{{- define "drainSeconds" -}}
{{- if hasKey . "drainSeconds" }}{{ .drainSeconds }}{{ else }}30{{ end }}
{{- end }}
