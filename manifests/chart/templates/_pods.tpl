{{/* What every pod of the chart has: where it may run, and as what. `of` has the values of the workload; `boards` says that the workload
belongs to nodes with boards: (dict "root" $ "of" VALUES "boards" BOOLEAN). Values of the workload go before the defaults. */}}
{{- define "pod" -}}
{{- $own := .of -}}
# A service's name must not become a setting (FPGA_…).
enableServiceLinks: false
{{- with include "pullSecrets" . | fromJsonArray }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
nodeSelector:
  {{- include "nodeSelector" . | nindent 2 }}
{{- with include "podTolerations" . | fromJsonArray }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "podAffinity" . | fromJson }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The pull secrets of all pods, and those of the workload, as JSON. */}}
{{- define "pullSecrets" -}}
{{- $all := list }}
{{- range .root.Values.images.pullSecrets }}{{ $all = append $all (dict "name" .) }}{{ end }}
{{- concat $all (.of.imagePullSecrets | default list) | uniq | toJson }}
{{- end }}

{{/* Our programs run on Linux, and on the processor that the images are for. */}}
{{- define "nodeSelector" -}}
{{- $all := dict "kubernetes.io/os" "linux" }}
{{- with .root.Values.images.architecture }}{{ $_ := set $all "kubernetes.io/arch" . }}{{ end }}
{{- toYaml (mergeOverwrite $all (deepCopy (.of.nodeSelector | default dict))) }}
{{- end }}

{{/* Nodes with boards may have the taint nodes.taint. As JSON. */}}
{{- define "podTolerations" -}}
{{- $all := list }}
{{- if .boards }}
{{- $all = concat (list (dict "key" .root.Values.nodes.taint "operator" "Exists")) .root.Values.nodes.tolerations }}
{{- end }}
{{- concat $all (.of.tolerations | default list) | toJson }}
{{- end }}

{{/* The workload's affinity as JSON. With `boardLabel` each of its terms for nodes also asks for the label nodes.label. */}}
{{- define "podAffinity" -}}
{{- $affinity := deepCopy (.of.affinity | default dict) }}
{{- if .boardLabel }}
{{- $hasBoards := dict "key" .root.Values.nodes.label "operator" "Exists" }}
{{- $required := "requiredDuringSchedulingIgnoredDuringExecution" }}
{{- $ofNodes := $affinity.nodeAffinity | default dict }}
{{- $terms := list }}
{{- range dig $required "nodeSelectorTerms" (list dict) $ofNodes }}
{{- $terms = append $terms (set (deepCopy .) "matchExpressions" (append (.matchExpressions | default list) $hasBoards)) }}
{{- end }}
{{- $_ := set $affinity "nodeAffinity" (set $ofNodes $required (dict "nodeSelectorTerms" $terms)) }}
{{- end }}
{{- toJson $affinity }}
{{- end }}

{{/* The resources of a container: (VALUES). */}}
{{- define "containerResources" -}}
{{- with .resources -}}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What a kind of boards has where its values say nothing. */}}
{{- define "boardKindDefaults" -}}
priorityClassName: system-node-critical
resources:
  requests: { cpu: 100m, memory: 256Mi }
  limits: { memory: 2Gi }
{{- end }}
