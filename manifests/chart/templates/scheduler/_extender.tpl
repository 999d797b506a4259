{{/* The extender's container, without its name. */}}
{{- define "extenderContainer" -}}
{{- $own := eq .Values.scheduler.mode "own" -}}
image: {{ include "image" (dict "root" . "name" "fpga-scheduler-extender") }}
imagePullPolicy: {{ .Values.images.pullPolicy }}
env:
  {{- if $own }}
  # For kube-scheduler in this pod, and for nobody else.
  - name: FPGA_LISTEN
    value: 127.0.0.1:9461
  {{- else }}
  # Who has no certificate of the authority gets no answer: who reaches the verbs may say where pods go.
  - name: FPGA_LISTEN
    value: "[::]:9461"
  - name: FPGA_TLS_CERT
    value: /tls/tls.crt
  - name: FPGA_TLS_KEY
    value: /tls/tls.key
  - name: FPGA_TLS_CLIENT_CA
    value: /tls/client-ca.crt
  {{- end }}
  # For people and their tools (kubectl fpga): what is known and why was what decided, and no verb.
  - name: FPGA_READ_LISTEN
    value: "[::]:9465"
  - name: FPGA_READ_ACCESS
    value: {{ .Values.readers.access }}
  - name: FPGA_STREAM_LISTEN
    value: "[::]:9463"
  - name: FPGA_STREAM_TLS_CERT
    value: /stream-tls/tls.crt
  - name: FPGA_STREAM_TLS_KEY
    value: /stream-tls/tls.key
  - name: FPGA_POD_NAMESPACE
    valueFrom:
      fieldRef:
        fieldPath: metadata.namespace
  - name: FPGA_STREAM_AUDIENCE
    value: {{ include "extenderAudience" . }}
  # Each collector shows the token of its pod, and speaks for the node that the pod runs on.
  - name: FPGA_STREAM_SERVICE_ACCOUNT
    value: $(FPGA_POD_NAMESPACE)/fpga-collector
  # Whose Bitstreams all pods may name.
  - name: FPGA_LIBRARY_NAMESPACE
    value: {{ .Values.customResources.libraryNamespace | default .Release.Namespace }}
  # With a registry it says which Bitstreams of other namespaces count.
  - name: FPGA_OWN_BITSTREAMS
    value: {{ ternary "accepted" "any" .Values.registry.enabled }}
  # Probes and metrics alone.
  - name: FPGA_METRICS_LISTEN
    value: "[::]:9464"
  - name: FPGA_CONFIG
    value: /config/extender.yaml
  # Events on the configuration are about this pod.
  - name: FPGA_POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  - name: FPGA_POD_UID
    valueFrom:
      fieldRef:
        fieldPath: metadata.uid
  - name: FPGA_LOG_FORMAT
    value: json
ports:
  {{- if not $own }}
  - name: verbs
    containerPort: 9461
  {{- end }}
  - name: read
    containerPort: 9465
  - name: stream
    containerPort: 9463
  - name: metrics
    containerPort: 9464
# kube-scheduler starts when the extender can decide.
startupProbe:
  httpGet:
    path: /readyz
    port: metrics
  periodSeconds: 2
  failureThreshold: 150
readinessProbe:
  httpGet:
    path: /readyz
    port: metrics
  periodSeconds: 2
livenessProbe:
  httpGet:
    path: /healthz
    port: metrics
  periodSeconds: 10
  failureThreshold: 3
{{- include "containerResources" .Values.extender | nindent 0 }}
securityContext:
  {{- include "restricted" . | nindent 2 }}
volumeMounts:
  # The folder, not the file by subPath: that would never change.
  - name: config
    mountPath: /config
    readOnly: true
  - name: stream-tls
    mountPath: /stream-tls
    readOnly: true
  {{- if not $own }}
  - name: tls
    mountPath: /tls
    readOnly: true
  {{- end }}
{{- end }}

{{/* The configuration of our own kube-scheduler. */}}
{{- define "kubeSchedulerConfiguration" -}}
# The scheduler of pods that say `schedulerName: {{ .Values.scheduler.name }}`; those that request a board are sent to the extender, which
# is in the same pod. What the values mean: scheduler-config/README.md.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  # The account of the pod.
  kubeconfig: ""
  # Each pod that is placed is one request, and one for its event. By itself kube-scheduler makes 50 a second at most.
  qps: {{ .Values.scheduler.qps }}
  burst: {{ mul 2 .Values.scheduler.qps }}
leaderElection:
  leaderElect: true
  # In the pod's own namespace, as a flag says.
  resourceName: kube-fpga-scheduler
# Only nodes with boards pass kube-scheduler's own filters: up to 300 of them are judged for each pod.
percentageOfNodesToScore: {{ include "percentageOfNodesToScore" . }}
profiles:
  - schedulerName: {{ .Values.scheduler.name }}
    plugins:
      filter:
        # First, since it turns away most nodes of a large cluster, and at the least cost.
        enabled:
          - name: NodeAffinity
    pluginConfig:
      - name: NodeAffinity
        args:
          # Node plugins run on these nodes alone, so that no other one advertises boards.
          addedAffinity:
            requiredDuringSchedulingIgnoredDuringExecution:
              nodeSelectorTerms:
                - matchExpressions:
                    - key: {{ .Values.nodes.label }}
                      operator: Exists
extenders:
  - urlPrefix: http://127.0.0.1:9461
    filterVerb: filter
    prioritizeVerb: prioritize
    preemptVerb: preempt
    weight: {{ .Values.scheduler.weight }}
    nodeCacheCapable: true
    ignorable: false
    httpTimeout: {{ .Values.scheduler.httpTimeout }}
    managedResources:
      # Node plugins advertise it, so that kube-scheduler itself counts the instances that are free.
      {{- range include "resources" . | fromJsonArray }}
      - name: {{ . }}
        ignoredByScheduler: false
      {{- end }}
{{- end }}
