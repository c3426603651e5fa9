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
  {{- $c := . }}
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "vecmill.colourLabels" $c | nindent 8 }}
    # The pods of one release of the Deployment: those that a roll-out replaces do not count.
    matchLabelKeys: [pod-template-hash]
  {{- end }}
  {{- end }}
{{- with $values.initContainers }}
initContainers:
  {{- range . }}
  {{- $container := dict "securityContext" (include "vecmill.noRights" $ | fromYaml) }}
  {{- include "vecmill.overlay" (dict "into" $container "from" .) }}
  - {{- toYaml $container | nindent 4 }}
  {{- end }}
{{- end }}
containers:
  - name: vecmill
    image: {{ include "vecmill.image" . | quote }}
    imagePullPolicy: {{ .image.pullPolicy }}
    command: ["vecmill", "serve", "--config", "/etc/vecmill/vecmill.toml"]
    env:
      {{- include "vecmill.environment" . | nindent 6 }}
    {{- with $values.envFrom }}
    envFrom:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    ports:
      - name: http
        containerPort: 7997
        protocol: TCP
    {{- include "vecmill.probes" . | nindent 4 }}
    resources:
      {{- include "vecmill.resources" . | nindent 6 }}
    securityContext:
      {{- include "vecmill.noRights" . | nindent 6 }}
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
      {{- if include "vecmill.hasModelVolume" . }}
      - name: model-volume
        mountPath: {{ .modelVolume.path | quote }}
        readOnly: true
      {{- end }}
      {{- if get .server "batch_dir" }}
      - name: batches
        mountPath: /var/lib/vecmill
      {{- end }}
      {{- if include "vecmill.hasAuthorities" . }}
      - name: certificate-authority
        mountPath: /run/certificates
        readOnly: true
      {{- end }}
      - name: tmp
        mountPath: /tmp
      {{- with $values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  {{- include "vecmill.volumes" . | nindent 2 }}
{{- end }}

{{- define "vecmill.noRights" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end }}

{{/* "true" if the pods trust a bundle of certificates from a ConfigMap or a Secret. */}}
{{- define "vecmill.hasAuthorities" -}}
{{- with .root.Values.certificateAuthority }}{{ if or .existingConfigMap .existingSecret }}true{{ end }}{{ end -}}
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
{{- if include "vecmill.hasAuthorities" . }}
{{- /* The client of the hub and Python's ssl read the first, the exporter of traces the second. */ -}}
{{- range list "SSL_CERT_FILE" "REQUESTS_CA_BUNDLE" }}
- name: {{ . }}
  value: {{ printf "/run/certificates/%s" $values.certificateAuthority.entry }}
{{- end }}
{{- end }}
{{- range $name, $value := $values.env }}
- name: {{ $name }}
  {{- if kindIs "map" $value }}
  {{- toYaml $value | nindent 2 }}
  {{- else }}
  value: {{ $value | quote }}
  {{- end }}
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
  # One slow answer takes no pod out of the Service. A pod that stops answers 503, and is out after 3 s of its lame-duck time.
  periodSeconds: 1
  timeoutSeconds: 2
  failureThreshold: 3
{{- end }}

{{- define "vecmill.resources" -}}
{{- $resources := deepCopy .resources -}}
{{- $limits := get $resources "limits" | default dict -}}
{{- if gt (int .gpu.count) 0 }}{{ $_ := set $limits .gpu.resource (int .gpu.count) }}{{ end -}}
{{- if not (hasKey $limits "ephemeral-storage") -}}
{{- $_ := set $limits "ephemeral-storage" (printf "%sMi" (include "vecmill.ephemeralMebibytes" .)) -}}
{{- end -}}
{{- $_ := set $resources "limits" $limits -}}
{{- toYaml $resources -}}
{{- end }}

{{/* What the pod may write to the disk of its node: each emptyDir with a limit, and 1 GiB of logs. */}}
{{- define "vecmill.ephemeralMebibytes" -}}
{{- $cache := .root.Values.cache -}}
{{- $size := include "vecmill.mebibytes" .root.Values.tmp.size | int64 -}}
{{- if not (or $cache.persistent $cache.existingClaim) -}}
{{- $size = add $size (include "vecmill.mebibytes" $cache.size | int64) -}}
{{- end -}}
{{- range .root.Values.extraVolumes -}}
{{- $folder := get . "emptyDir" | default dict -}}
{{- if and $folder.sizeLimit (ne (get $folder "medium" | default "") "Memory") -}}
{{- $size = add $size (include "vecmill.mebibytes" (toString $folder.sizeLimit) | int64) -}}
{{- end -}}
{{- end -}}
{{- add $size 1024 -}}
{{- end }}

{{/* A quantity of bytes in MiB, rounded up. */}}
{{- define "vecmill.mebibytes" -}}
{{- $number := regexFind "^[0-9.]+" . -}}
{{- $unit := trimPrefix $number . -}}
{{- $factor := ternary 1024 1000 (hasSuffix "i" $unit) -}}
{{- $bytes := float64 $number -}}
{{- range until (get (dict "k" 1 "M" 2 "G" 3 "T" 4 "P" 5 "E" 6) (trimSuffix "i" $unit | replace "K" "k") | int) -}}
{{- $bytes = mulf $bytes $factor -}}
{{- end -}}
{{- divf $bytes 1048576 | ceil | int64 -}}
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
{{- if include "vecmill.hasModelVolume" . }}
- name: model-volume
  {{- with .modelVolume }}
  {{- if .image }}
  image:
    reference: {{ .image | quote }}
    pullPolicy: {{ .pullPolicy }}
  {{- else }}
  persistentVolumeClaim:
    claimName: {{ .existingClaim }}
    readOnly: true
  {{- end }}
  {{- end }}
{{- end }}
{{- if get .server "batch_dir" }}
- name: batches
  persistentVolumeClaim:
    claimName: {{ $values.batches.existingClaim | default (printf "%s-batches" $fullname) }}
{{- end }}
{{- if include "vecmill.hasAuthorities" . }}
- name: certificate-authority
  {{- with $values.certificateAuthority }}
  {{- if .existingConfigMap }}
  configMap:
    name: {{ .existingConfigMap }}
  {{- else }}
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0440
  {{- end }}
    items:
      - key: {{ .entry }}
        path: {{ .entry }}
  {{- end }}
{{- end }}
- name: tmp
  emptyDir:
    sizeLimit: {{ $values.tmp.size }}
{{- with $values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
