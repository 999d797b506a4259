{{/* Labels of every object. */}}
{{- define "labels" -}}
app.kubernetes.io/part-of: kube-fpga
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* An image of ours by its digest, else by the tag, by default that of the chart's own version: (dict "root" $ "name" NAME). */}}
{{- define "image" -}}
{{- with .root.Values.images }}{{ with .registry }}{{ . }}/{{ end }}kube-fpga/{{ $.name }}
{{- with get (.digests | default dict) $.name }}@{{ . }}{{ else }}:{{ $.root.Values.images.tag | default $.root.Chart.AppVersion }}{{ end }}{{ end }}
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

{{/* Whether Helm asks a cluster. Without one Helm only pretends to know a version. "true" or nothing. */}}
{{- define "asksCluster" -}}
{{- if lookup "v1" "Namespace" "" "kube-system" }}true{{ end }}
{{- end }}

{{/* The API server's version. Where Helm asks no cluster, scheduler.version says it, else --kube-version. */}}
{{- define "clusterVersion" -}}
{{- $version := .Capabilities.KubeVersion.Version }}
{{- if not (include "asksCluster" .) }}{{ $version = default $version .Values.scheduler.version }}{{ end }}
{{- $version }}
{{- end }}

{{/* kube-scheduler's version, without a vendor's suffix. */}}
{{- define "kubeSchedulerVersion" -}}
{{- $version := .Values.scheduler.version }}
{{- if not $version }}
{{- if not (include "asksCluster" .) }}
{{- fail "scheduler.version is empty, and Helm asks no cluster here (helm template, GitOps): write the version of your API server, as `kubectl version` shows it, for example --set scheduler.version=v1.36.3" }}
{{- end }}
{{- $version = include "clusterVersion" . }}
{{- end }}
{{- regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" $version }}
{{- end }}

{{/* How many nodes with boards our own scheduler judges for a pod. */}}
{{- define "mostJudged" -}}300{{- end }}

{{/* How many percent of all nodes make so many, and 100 percent in clusters that have no more, or of unknown size. */}}
{{- define "percentageOfNodesToScore" -}}
{{- $most := include "mostJudged" . | int }}
{{- $nodes := int .Values.scheduler.nodes }}
{{- if gt $nodes $most }}{{ div (add (mul 100 $most) $nodes -1) $nodes }}{{ else }}100{{ end }}
{{- end }}

{{/* The name of the Service of the pool's broker. */}}
{{- define "poolHost" -}}fpga-pool.{{ .Release.Namespace }}.svc{{- end }}

{{/* The audiences of tokens: a service can't show the tokens that it gets to another one. */}}
{{- define "extenderAudience" -}}fpga-scheduler-extender{{- end }}
{{- define "pickerAudience" -}}fpga-endpoint-picker{{- end }}
{{- define "poolAudience" -}}fpga-pool{{- end }}

{{/* How many slots the boards of a kind lend to the pool: (dict "root" $ "kind" KIND). */}}
{{- define "poolSlots" -}}
{{- if not .root.Values.pool.enabled }}0
{{- else if hasKey .kind "poolSlots" }}{{ .kind.poolSlots }}
{{- else }}{{ .root.Values.pool.slots }}{{ end }}
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

{{/*
Whom a policy binds: who has the role of our collectors or node plugins, by whatever name, in whatever namespace. The role holds a
right that means nothing else; administrators, who hold all rights, may also delete the objects. A role may be bound in one namespace
only. (dict "right" RIGHT "group" GROUP-OR-NOTHING "object" RESOURCE "in" CEL-OF-THE-NAMESPACE-OR-NOTHING)
*/}}
{{- define "isBound" -}}
authorizer.group("fpga-scheduling.io").resource({{ .right | quote }}){{ .in }}.check("bind-to-node").allowed()
&& !authorizer.group({{ .group | default "" | quote }}).resource({{ .object | quote }}){{ .in }}.check("delete").allowed()
{{- end }}

{{/* Lists of an object's metadata that a policy keeps as they are. */}}
{{- define "keepsMetadata" -}}
{{- range $index, $list := . }}{{ if $index }}
&& {{ end }}(has(object.metadata.{{ $list }}) ? object.metadata.{{ $list }} : []) == (has(oldObject.metadata.{{ $list }}) ? oldObject.metadata.{{ $list }} : []){{ end }}
{{- end }}

{{/* How long sessions may go on when the device managers of a kind of boards end, in seconds. */}}
{{- define "drainSeconds" -}}
{{- if hasKey . "drainSeconds" }}{{ .drainSeconds }}{{ else }}30{{ end }}
{{- end }}
