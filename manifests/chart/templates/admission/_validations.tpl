{{/*
What a pod may not be, as variables and validations of a policy: (dict "root" $ "of" "pods" or "templates"). A template is judged as if its
pods were made, with what assign.yaml will write into them.
*/}}
{{- define "podChecks" -}}
{{- $assigns := include "assigns" .root }}
{{- $ofPods := eq .of "pods" }}
{{- $line := include "requestLine" . }}
{{- $scheduler := "" }}
{{- $schedulers := list }}
{{- with .root.Values }}{{ if eq .scheduler.mode "own" }}
{{- $scheduler = printf "schedulerName: %s" .scheduler.name }}
{{- $schedulers = prepend .podAdmission.otherSchedulers .scheduler.name }}
{{- end }}{{ end }}
{{- if and $assigns (not $ofPods) }}{{ $schedulers = append $schedulers "default-scheduler" }}{{ end -}}
variables:
  {{- include "podVariables" (dict "root" .root "pod" (ternary "object" (printf "%s.value()" (include "podTemplate" "object" | replace "\n" "")) $ofPods)) | nindent 2 }}
  - name: isNew
    expression: {{ ternary `request.operation == "CREATE"` "true" $ofPods | squote }}
  - name: isLeftOut
    expression: 'variables.labels[?"fpga-scheduling.io/admission"].orValue("") == "ignore"'
  - name: checked
    expression: 'variables.isNew && !variables.isLeftOut'
  # Labels and annotations by which a pod asks for boards without a container that does.
  - name: unanswered
    expression: >-
      variables.namesResource || variables.number == "0" ? []
      : variables.labels.filter(k, k == "fpga-scheduling.io/accelerated").map(k, "label " + k) + variables.requirements
  # Containers of which the kubelet does not tell who they are: init containers that are no sidecars.
  - name: initAsking
    expression: >-
      variables.initContainers.filter(c, c.?restartPolicy.orValue("") != "Always"
      && {{ include "quantities" . }}.exists(m, m.exists(k, k in variables.resources && m[k] != "0")))
  # Resources of vendors that the node plugins do not offer.
  - name: unknown
    expression: >-
      variables.containers.map(c, c.?resources.?limits.orValue({}).filter(k,
      k.startsWith("fpga-scheduling.io/") && !(k in variables.resources) && c.resources.limits[k] != "0")).filter(keys, keys.size() > 0)
  - name: schedulerName
    expression: 'variables.pod.spec.?schedulerName.orValue("default-scheduler")'
validations:
  {{- if $assigns }}
  - expression: '!variables.checked || variables.namesResource || variables.number.matches("^(0|[1-9][0-9]?)$")'
    messageExpression: >-
      "the label fpga-scheduling.io/accelerated has the value \"" + variables.number
      + "\"; write the number of boards there, from 1 to 99, for example fpga-scheduling.io/accelerated: \"1\""
    reason: Invalid
  - expression: >-
      !variables.checked || variables.unanswered.size() == 0 || !("fpga-scheduling.io/container" in variables.annotations)
      || variables.annotations["fpga-scheduling.io/container"] in variables.names
    messageExpression: >-
      "the annotation fpga-scheduling.io/container has the value \"" + variables.annotations["fpga-scheduling.io/container"]
      + "\"; write the name of the container that gets the board: " + variables.names.join(" or ")
    reason: Invalid
  {{- end }}
  {{- if or $ofPods (not $assigns) }}
  - expression: '!variables.checked || variables.unanswered.size() == 0'
    messageExpression: >-
      "the pod has the " + variables.unanswered[0] + ", but no container asks for a board; write into the container: {{ $line }}
      {{- if not $assigns }}{{ with $scheduler }}, and into the pod's specification: {{ . }}{{ end }}
      {{- "" }} (labels and annotations alone are enough from Kubernetes 1.36 on, with podAdmission.assign of the chart){{ end }}"
    reason: Invalid
  {{- end }}
  - expression: '!variables.checked || variables.initAsking.size() == 0'
    messageExpression: >-
      "the init container " + variables.initAsking[0].name + " can't have a board, since the kubelet does not tell who an init container is;
      take the resource out of it and ask in a container, or write restartPolicy: Always into it to make it a sidecar"
    reason: Invalid
  - expression: '!variables.checked || variables.unknown.size() == 0'
    messageExpression: >-
      "this cluster has no resource " + variables.unknown[0][0] + ", but " + variables.resources.join(" and ")
      + " (scheduler.vendorResources of the chart); write into the container: {{ $line }}, and as label of the pod: fpga-scheduling.io/fpga-vendor: "
      + variables.unknown[0][0].replace("fpga-scheduling.io/", "")
    reason: Invalid
  - expression: >-
      !variables.checked || variables.containers.all(c,
      c.?resources.?limits.orValue({}).filter(k, k in variables.resources && c.resources.limits[k] != "0").size() <= 1)
    messageExpression: >-
      "a container asks for two of the resources " + variables.asked.join(" and ") + "; write one of them, with the number of boards"
    reason: Invalid
  - expression: '!variables.checked || variables.asked.filter(k, k != "fpga-scheduling.io/accelerated").size() <= 1'
    messageExpression: >-
      "the pod asks for boards of two vendors, " + variables.asked.join(" and ") + "; a pod gets boards of one vendor: write one of the resources"
    reason: Invalid
  {{- with $scheduler }}
  - expression: '!variables.checked || variables.asked.size() == 0 || variables.schedulerName in {{ toJson $schedulers }}'
    messageExpression: >-
      "the pod asks for a board, and its scheduler " + variables.schedulerName + " does not ask kube-fpga which boards fit; write into the
      pod's specification: {{ . }} (podAdmission.otherSchedulers of the chart lists further schedulers that ask)"
    reason: Invalid
  {{- end }}
  - expression: >-
      !variables.isNew || variables.pod.spec.?volumes.orValue([]).all(v, !has(v.hostPath)
      || !v.hostPath.path.matches("^/+(var/+)?run/+fpga(/|$)|^{{ .root.Values.nodePlugin.kubeletDir }}/+plugins/+fpga-scheduling[.]io(/|$)"))
    message: >-
      folders of kube-fpga on the node can't be mounted as hostPath; leave the volume out: a container that asks for
      {{ $line }} gets what it needs
    reason: Invalid
  - expression: >-
      variables.isLeftOut || (variables.isNew ? dyn(variables.containers) : dyn(variables.pod.spec.?ephemeralContainers.orValue([]))).all(c,
      !has(c.env) || c.env.all(e, e.name != "FPGA_DEVICE_MANAGERS"))
    message: >-
      FPGA_DEVICE_MANAGERS can't be set by hand; leave it out: a container that asks for
      {{ $line }} is told its managers
    reason: Invalid
{{- end }}
