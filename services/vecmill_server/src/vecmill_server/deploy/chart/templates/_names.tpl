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

{{/* The labels of an object of a colour. The argument is a resolved colour. */}}
{{- define "vecmill.labels" -}}
{{ include "vecmill.selectorLabels" .root }}
app.kubernetes.io/version: {{ include "vecmill.version" . | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* The labels of an object that belongs to no colour. The argument is the root. */}}
{{- define "vecmill.releaseLabels" -}}
{{- include "vecmill.labels" (dict "root" . "image" .Values.image) -}}
{{- end }}

{{/* The tag of the image, as the value of a label. An image without a tag has the version of the chart. */}}
{{- define "vecmill.version" -}}
{{- .image.tag | default .root.Chart.AppVersion | trunc 63 | trimAll "._-" -}}
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
