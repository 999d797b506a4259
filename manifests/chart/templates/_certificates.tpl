{{/* The certificates of the services, each with a Secret and a key of its own, as JSON: secret, and the names by which clients call it. */}}
{{- define "certificates" -}}
{{- $hosts := dict "fpga-extender-stream-tls" "fpga-scheduler-extender" }}
{{- if .Values.router.enabled }}{{ $_ := set $hosts "fpga-router-stream-tls" "fpga-endpoint-picker" }}{{ end }}
{{- if .Values.pool.enabled }}{{ $_ := set $hosts "fpga-pool-tls" "fpga-pool" }}{{ end }}
{{- if and .Values.router.enabled .Values.router.externalMetrics.enabled (ne .Values.certificates.mode "script") }}
{{- $_ := set $hosts "fpga-external-metrics-tls" "fpga-external-metrics" }}
{{- end }}
{{- $all := list }}
{{- range $secret, $service := $hosts }}
{{- $host := printf "%s.%s.svc" $service $.Release.Namespace }}
{{- $addresses := ternary $.Values.certificates.addresses list (eq $service "fpga-scheduler-extender") }}
{{- $all = append $all (dict "secret" $secret "names" (concat (list $host (printf "%s.cluster.local" $host)) $addresses)) }}
{{- end }}
{{- toJson $all }}
{{- end }}

{{/* The namespaces whose ConfigMap fpga-pool has the authorities of the broker's certificate, as JSON. manifests/certificates.sh fills them itself. */}}
{{- define "authorityCopies" -}}
{{- toJson (ternary .Values.pool.clientNamespaces list (and .Values.pool.enabled (ne .Values.certificates.mode "script"))) }}
{{- end }}

{{/* Whether there is work for the Job of certificates: yes or nothing. */}}
{{- define "certificatesJob" -}}
{{- if or (eq .Values.certificates.mode "generate") (and .Values.pool.enabled (eq .Values.certificates.mode "cert-manager")) }}yes{{ end }}
{{- end }}

{{/* What the Job and the CronJob of certificates run. */}}
{{- define "certificatesPod" -}}
metadata:
  labels:
    app.kubernetes.io/name: fpga-certificates
    {{- include "labels" . | nindent 4 }}
spec:
  {{- include "pod" (dict "root" . "of" .Values.jobs) | nindent 2 }}
  restartPolicy: Never
  serviceAccountName: fpga-certificates
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: certificates
      image: {{ include "image" (dict "root" . "name" "fpga-scheduler-extender") }}
      imagePullPolicy: {{ .Values.images.pullPolicy }}
      args:
        - certificates
        - --namespace={{ .Release.Namespace }}
        {{- if eq .Values.certificates.mode "generate" }}
        {{- range include "certificates" . | fromJsonArray }}
        - --certificate={{ .secret }}={{ join "," .names }}
        {{- end }}
        - --days={{ .Values.certificates.days }}
        {{- if and .Values.router.enabled .Values.router.externalMetrics.enabled }}
        - --api-service=v1beta1.external.metrics.k8s.io
        {{- end }}
        {{- else }}
        - --authorities-of=fpga-pool-tls
        {{- end }}
        {{- if .Values.pool.enabled }}
        - --ticket-key=fpga-pool-ticket-key
        {{- end }}
        {{- with include "authorityCopies" . | fromJsonArray }}
        - --copies={{ join "," . }}
        {{- end }}
      {{- include "containerResources" .Values.jobs | nindent 6 }}
      securityContext:
        {{- include "restricted" . | nindent 8 }}
{{- end }}
