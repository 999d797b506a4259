{{/* A dashboard as Grafana's JSON: (dict "name" NAME "dashboard" DASHBOARD), where DASHBOARD is a file of chart/dashboards. Panels stand in
rows of 24 columns, in their order: six for a number, twelve for a graph. */}}
{{- define "grafana.dashboard" -}}
{{- $source := dict "type" "prometheus" "uid" "${datasource}" }}
{{- $variables := list (dict "type" "datasource" "name" "datasource" "label" "Data source" "query" "prometheus") }}
{{- range .dashboard.variables }}
  {{- $query := dict "query" .query "refId" .name }}
  {{- $variables = append $variables (dict "type" "query" "name" .name "label" .label "datasource" $source "definition" .query "query" $query
      "refresh" 2 "sort" 1 "multi" true "includeAll" true "allValue" ".*" "current" (dict "text" "All" "value" "$__all")) }}
{{- end }}
{{- $panels := list }}
{{- $x := 0 }}{{ $y := 0 }}{{ $rowHeight := 0 }}
{{- range $index, $panel := .dashboard.panels }}
  {{- $kind := $panel.kind | default "timeseries" }}
  {{- $width := eq $kind "stat" | ternary 6 12 }}
  {{- $height := eq $kind "stat" | ternary 4 8 }}
  {{- if gt (add $x $width) 24 }}
    {{- $x = 0 }}{{ $y = add $y $rowHeight }}{{ $rowHeight = 0 }}
  {{- end }}
  {{- $targets := list }}
  {{- range $number, $query := $panel.queries }}
    {{- $targets = append $targets (dict "refId" (printf "%c" (add 65 $number)) "datasource" $source "editorMode" "code" "range" true
        "expr" $query.expr "legendFormat" $query.legend) }}
  {{- end }}
  {{- $defaults := dict "unit" $panel.unit "min" 0 }}
  {{- $options := dict "legend" (dict "displayMode" "list" "placement" "bottom" "showLegend" true) "tooltip" (dict "mode" "multi" "sort" "desc") }}
  {{- if eq $kind "stat" }}
    {{- $options = dict "reduceOptions" (dict "calcs" (list "lastNotNull")) "graphMode" "area" "colorMode" "value" }}
  {{- end }}
  {{- $panels = append $panels (dict "id" (add1 $index) "type" $kind "title" $panel.title "description" $panel.description "datasource" $source
      "gridPos" (dict "x" $x "y" $y "w" $width "h" $height) "fieldConfig" (dict "defaults" $defaults "overrides" list) "options" $options
      "targets" $targets) }}
  {{- $x = add $x $width }}
  {{- $rowHeight = max $rowHeight $height }}
{{- end }}
{{- $others := dict "type" "dashboards" "title" "kube-fpga" "tags" (list "kube-fpga") "asDropdown" true "includeVars" true "keepTime" true }}
{{- dict "uid" (printf "kube-fpga-%s" .name) "title" (printf "kube-fpga / %s" .dashboard.title) "description" .dashboard.description
    "tags" (list "kube-fpga") "schemaVersion" 42 "editable" true "graphTooltip" 1 "refresh" "30s" "time" (dict "from" "now-1h" "to" "now")
    "links" (list $others) "templating" (dict "list" $variables) "panels" $panels | toRawJson }}
{{- end }}
