{{/* Envoy's configuration: chart/envoy.yaml, or router.envoy.config, with what router.domain, router.tlsSecret, router.replicas,
router.envoy.ipv6 and router.envoy.memoryMiB say. */}}
{{- define "envoyConfiguration" -}}
{{- $router := .Values.router }}
{{- $heap := div (mul (int64 $router.envoy.memoryMiB) 1048576 4) 5 | toString }}
{{- $text := $router.envoy.config | default (.Files.Get "envoy.yaml") | replace "max_heap_size_bytes: 429496729" (printf "max_heap_size_bytes: %s" $heap) }}
{{- if not $router.envoy.ipv6 }}{{ $text = replace "{ address: \"::\", ipv4_compat: true," "{ address: 0.0.0.0," $text }}{{ end }}
{{- if gt (int $router.replicas) 1 }}
{{- $all := printf "{ address: fpga-endpoint-picker.%s.svc, port_value: 9470 }" .Release.Namespace }}
{{- $text = replace "{ address: 127.0.0.1, port_value: 9470 }" $all $text }}
{{- end }}
{{- if or $router.domain $router.tlsSecret }}
{{- $config := fromYaml $text }}
{{- $chain := index (index $config.static_resources.listeners 0).filter_chains 0 }}
{{- if $router.tlsSecret }}{{ $_ := set $chain "transport_socket" (include "envoyTls" . | fromYaml) }}{{ end }}
{{- if $router.domain }}
{{- $routes := (index $chain.filters 0).typed_config.route_config }}
{{- $byPath := index $routes.virtual_hosts 0 }}
{{- $byHost := list }}
{{- range $byPath.routes }}
{{- $route := deepCopy . }}
{{- $_ := set $route.match "prefix" "/" }}
{{- $_ := unset $route.route "regex_rewrite" }}
{{- $_ := set $route "typed_per_filter_config" (include "envoyNameByHost" $router.domain | fromYaml) }}
{{- $byHost = append $byHost $route }}
{{- end }}
{{- $host := deepCopy $byPath }}
{{- $_ := set $host "name" "by-host" }}
{{- $_ := set $host "domains" (list (printf "*.%s" $router.domain)) }}
{{- $_ := set $host "routes" (concat $byPath.routes $byHost) }}
{{- $_ := set $routes "virtual_hosts" (list $host $byPath) }}
{{- end }}
{{- toYaml $config }}
{{- else }}
{{- $text | trim }}
{{- end }}
{{- end }}

{{/* TLS for clients; a changed certificate applies to new connections. */}}
{{- define "envoyTls" -}}
name: envoy.transport_sockets.tls
typed_config:
  "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
  common_tls_context:
    alpn_protocols: [h2, http/1.1]
    tls_certificate_sds_secret_configs:
      - name: functions
        sds_config:
          resource_api_version: V3
          path_config_source: { path: /config/certificate.yaml }
{{- end }}

{{/* The name of the function in the host, for the time without a picker. */}}
{{- define "envoyNameByHost" -}}
envoy.filters.http.header_to_metadata:
  "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
  request_rules:
    - header: ":authority"
      on_header_present:
        metadata_namespace: envoy.lb
        key: function
        regex_value_rewrite:
          pattern: { regex: {{ printf "^(.+)\\.%s\\.?(:[0-9]+)?$" (. | replace "." "\\.") | quote }} }
          substitution: "\\1"
{{- end }}
