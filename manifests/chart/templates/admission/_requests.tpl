{{/* Whether the API server assigns: it has MutatingAdmissionPolicy from Kubernetes 1.36 on. "true" or nothing. */}}
{{- define "assigns" -}}
{{- if and .Values.podAdmission.assign (semverCompare ">=1.36.0-0" (include "clusterVersion" .)) }}true{{ end }}
{{- end }}

{{/* The line by which a container asks for a board. */}}
{{- define "requestLine" -}}
resources: {limits: {fpga-scheduling.io/accelerated: 1}}
{{- end }}

{{/* CEL: the requests and limits of a container, as two maps. */}}
{{- define "quantities" -}}
[c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})]
{{- end }}

{{/*
CEL variables of a policy for pods: (dict "root" $ "pod" EXPRESSION). A container that names one of our resources answers for the whole
pod, with zero too: labels and annotations of the pod then only say what its boards must be. Without such a container they ask for boards
themselves: the label fpga-scheduling.io/accelerated for its number, all others for one board.
*/}}
{{- define "podVariables" -}}
- name: pod
  expression: {{ .pod | squote }}
- name: labels
  expression: 'variables.pod.?metadata.?labels.orValue({})'
- name: annotations
  expression: 'variables.pod.?metadata.?annotations.orValue({})'
- name: initContainers
  expression: 'variables.pod.spec.?initContainers.orValue([])'
- name: containers
  expression: 'variables.pod.spec.containers + variables.initContainers'
- name: names
  expression: 'variables.pod.spec.containers.map(c, c.name)'
- name: resources
  expression: {{ include "resources" .root | squote }}
- name: namesResource
  expression: >-
    variables.containers.exists(c, {{ include "quantities" . }}.exists(m, m.exists(k, k.startsWith("fpga-scheduling.io/"))))
# Our resources that a container asks for.
- name: asked
  expression: >-
    variables.resources.filter(k, variables.containers.exists(c, {{ include "quantities" . }}.exists(m, k in m && m[k] != "0")))
# Labels and annotations that say what the boards of a pod must be.
- name: requirements
  expression: >-
    ["fpga-scheduling.io/fpga-vendor", "fpga-scheduling.io/board", "fpga-scheduling.io/shell-version"]
    .filter(k, k in variables.labels).map(k, "label " + k)
    + variables.annotations.filter(k, k.startsWith("blastfunction.io/") || k in [
    "fpga-scheduling.io/bitstreams", "fpga-scheduling.io/loaded-bitstreams", "fpga-scheduling.io/platform",
    "fpga-scheduling.io/slots", "fpga-scheduling.io/max-utilization"]).map(k, "annotation " + k)
- name: number
  expression: 'variables.labels[?"fpga-scheduling.io/accelerated"].orValue(variables.requirements.size() > 0 ? "1" : "0")'
{{- end }}

{{/* CEL variables of a policy for Deployments: the annotations of a Deployment and of its pods, before and now. */}}
{{- define "deploymentVariables" -}}
- name: own
  expression: 'object.metadata.?annotations.orValue({})'
- name: ofPods
  expression: 'object.spec.template.?metadata.?annotations.orValue({})'
- name: ownBefore
  expression: 'oldObject == null ? {} : oldObject.metadata.?annotations.orValue({})'
- name: ofPodsBefore
  expression: 'oldObject == null ? {} : oldObject.spec.template.?metadata.?annotations.orValue({})'
# Annotations that the pods have as the Deployment had them, and that the Deployment no longer has so.
- name: stale
  expression: >-
    variables.ownBefore.filter(k, k.startsWith("blastfunction.io/")
    && variables.ofPodsBefore[?k] == optional.of(variables.ownBefore[k])
    && variables.ofPods[?k] == optional.of(variables.ownBefore[k])
    && variables.own[?k] != optional.of(variables.ownBefore[k]))
{{- end }}

{{/* CEL: the template of a workload's pods. The argument is the workload. */}}
{{- define "podTemplate" -}}
dyn({{ . }}).?spec.?jobTemplate.?spec.?template.or(dyn({{ . }}).?spec.?template).or(dyn({{ . }}).?template)
{{- end }}

{{/* The workloads whose pods have a template, in resourceRules of a policy. */}}
{{- define "workloads" -}}
- apiGroups: [apps]
  apiVersions: [v1]
  operations: [CREATE, UPDATE]
  resources: [deployments, replicasets, statefulsets, daemonsets]
- apiGroups: [batch]
  apiVersions: [v1]
  operations: [CREATE, UPDATE]
  resources: [jobs, cronjobs]
- apiGroups: [""]
  apiVersions: [v1]
  operations: [CREATE, UPDATE]
  resources: [replicationcontrollers, podtemplates]
{{- end }}
