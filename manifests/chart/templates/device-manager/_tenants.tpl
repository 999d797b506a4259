{{/* The device managers' file of tenants (JSON, --tenants), of tenants of a kind of boards. */}}
{{- define "managerTenants" -}}
{{- $file := pick . "policy" "quantum" "ageing" }}
{{- $_ := set $file "default" (include "managerShare" (.default | default dict) | fromJson) }}
{{- $tenants := dict }}
{{- range $namespace, $share := .namespaces }}{{ $_ := set $tenants $namespace (include "managerShare" $share | fromJson) }}{{ end }}
{{- toJson (set $file "tenants" $tenants) }}
{{- end }}

{{- define "managerShare" -}}
{{- $quota := dict }}
{{- range $limit, $value := .quota }}{{ $_ := set $quota (kebabcase $limit) $value }}{{ end }}
{{- toJson (set (pick . "weight" "priority" "deadline") "quota" $quota) }}
{{- end }}
