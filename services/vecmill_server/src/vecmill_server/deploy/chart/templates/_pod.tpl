{{/* The pod of a colour. */}}
{{- define "vecmill.podSpec" -}}
{{- $values := .root.Values -}}
# A service named vecmill would set VECMILL_PORT=tcp://... in every pod.
enableServiceLinks: false
automountServiceAccountToken: false
{{- with $values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if .gpu.runtimeClassName }}
runtimeClassName: {{ .gpu.runtimeClassName }}
{{- end }}
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
# The lame-duck time and the drain time of the server, and 10 s for its end.
terminationGracePeriodSeconds: {{ include "vecmill.graceSeconds" . }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- if $values.topologySpreadConstraints }}
  {{- toYaml $values.topologySpreadConstraints | nindent 2 }}
  {{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "vecmill.colourLabels" . | nindent 8 }}
  {{- end }}
containers:
  - name: vecmill
    image: {{ include "vecmill.image" . | quote }}
    imagePullPolicy: {{ .image.pullPolicy }}
    command: ["vecmill", "serve", "--config", "/etc/vecmill/vecmill.toml"]
    env:
      {{- include "vecmill.environment" . | nindent 6 }}
    ports:
      - name: http
        containerPort: 7997
        protocol: TCP
    {{- include "vecmill.probes" . | nindent 4 }}
    resources:
      {{- include "vecmill.resources" . | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: ["ALL"]
    volumeMounts:
      - name: config
        mountPath: /etc/vecmill
        readOnly: true
      {{- if $values.keys.existingSecret }}
      - name: keys
        mountPath: /run/secrets/vecmill
        readOnly: true
      {{- end }}
      - name: cache
        mountPath: /var/cache/vecmill
      {{- if get .server "batch_dir" }}
      - name: batches
        mountPath: /var/lib/vecmill
      {{- end }}
      - name: tmp
        mountPath: /tmp
volumes:
  {{- include "vecmill.volumes" . | nindent 2 }}
{{- end }}

{{- define "vecmill.graceSeconds" -}}
{{- $lameDuck := ternary (get .server "lame_duck_s") 5 (hasKey .server "lame_duck_s") -}}
{{- $drain := ternary (get .server "drain_s") 25 (hasKey .server "drain_s") -}}
{{- addf $lameDuck $drain 10 | ceil | int -}}
{{- end }}

{{/* Options in the environment take the place of those in the configuration file. */}}
{{- define "vecmill.environment" -}}
{{- $values := .root.Values -}}
- name: VECMILL_HOST
  value: {{ $values.listen | quote }}
- name: VECMILL_PORT
  value: "7997"
- name: VECMILL_CACHE_DIR
  value: /var/cache/vecmill/prepared
- name: HF_HOME
  value: /var/cache/vecmill/huggingface
{{- /* An image for one engine or device names it in its environment. An empty variable counts as none. */ -}}
{{- range .chosen }}
- name: VECMILL_{{ upper . }}
  value: ""
{{- end }}
{{- if and (dig "requests" "cpu" "" .resources) (not (hasKey .defaults "cores")) }}
- name: VECMILL_CORES
  valueFrom:
    resourceFieldRef:
      resource: requests.cpu
      divisor: "1"
{{- end }}
{{- if $values.keys.existingSecret }}
- name: VECMILL_API_KEY_FILE
  value: {{ printf "/run/secrets/vecmill/%s" $values.keys.fileEntry }}
{{- end }}
{{- if $values.keys.metricsEntry }}
- name: VECMILL_METRICS_KEY
  valueFrom:
    secretKeyRef:
      name: {{ $values.keys.existingSecret }}
      key: {{ $values.keys.metricsEntry }}
{{- end }}
{{- if $values.hub.existingSecret }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ $values.hub.existingSecret }}
      key: {{ $values.hub.tokenEntry }}
{{- end }}
{{- range $name, $value := $values.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{/*
/livez answers as soon as the port is open, also while models are downloaded and loaded, which can take long.
/readyz must be asked at least once a minute: the server then knows at SIGTERM that a balancer needs its lame-duck time.
*/}}
{{- define "vecmill.probes" -}}
startupProbe:
  httpGet:
    path: {{ include "vecmill.path" (list . "/livez") }}
    port: http
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: 120
livenessProbe:
  httpGet:
    path: {{ include "vecmill.path" (list . "/livez") }}
    port: http
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet:
    path: {{ include "vecmill.path" (list . "/readyz") }}
    port: http
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 1
{{- end }}

{{- define "vecmill.resources" -}}
{{- $resources := deepCopy .resources -}}
{{- if gt (int .gpu.count) 0 -}}
{{- $limits := get $resources "limits" | default dict -}}
{{- $_ := set $limits .gpu.resource (int .gpu.count) -}}
{{- $_ := set $resources "limits" $limits -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end }}

{{- define "vecmill.volumes" -}}
{{- $values := .root.Values -}}
{{- $fullname := include "vecmill.fullname" .root -}}
- name: config
  configMap:
    name: {{ include "vecmill.configMap" . }}
{{- if $values.keys.existingSecret }}
- name: keys
  secret:
    secretName: {{ $values.keys.existingSecret }}
    defaultMode: 0440
    items:
      - key: {{ $values.keys.fileEntry }}
        path: {{ $values.keys.fileEntry }}
{{- end }}
- name: cache
  {{- if $values.cache.existingClaim }}
  persistentVolumeClaim:
    claimName: {{ $values.cache.existingClaim }}
  {{- else if $values.cache.persistent }}
  persistentVolumeClaim:
    claimName: {{ $fullname }}-cache
  {{- else }}
  emptyDir:
    sizeLimit: {{ $values.cache.size }}
  {{- end }}
{{- if get .server "batch_dir" }}
- name: batches
  persistentVolumeClaim:
    claimName: {{ $values.batches.existingClaim | default (printf "%s-batches" $fullname) }}
{{- end }}
- name: tmp
  emptyDir: {}
{{- end }}
