{{/* The name of the active Service, and the first part of all other names. */}}
{{- define "vecmill.fullname" -}}
{{- $name := .Release.Name -}}
{{- if not (contains "vecmill" $name) }}{{ $name = printf "%s-vecmill" $name }}{{ end -}}
{{- .Values.fullnameOverride | default $name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* The labels by which everything of this release is selected. */}}
{{- define "vecmill.selectorLabels" -}}
app.kubernetes.io/name: vecmill
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "vecmill.labels" -}}
{{ include "vecmill.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* The labels by which a Deployment selects its pods. The argument is a resolved colour. */}}
{{- define "vecmill.colourLabels" -}}
{{ include "vecmill.selectorLabels" .root }}
vecmill/colour: {{ .colour }}
{{- end }}

{{/*
The labels by which a Service selects pods. Pods of another vector space are never behind the same Service, also while a
Deployment is updated.
*/}}
{{- define "vecmill.vectorSpaceLabels" -}}
{{ include "vecmill.colourLabels" . }}
vecmill/vector-space: {{ .space | quote }}
{{- end }}
