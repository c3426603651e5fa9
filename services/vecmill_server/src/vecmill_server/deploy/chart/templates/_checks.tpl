{{/*
The rules that the schema of the values cannot express. The argument has `root`, and `colours`: a list of the resolved
colours that are enabled. Each rule fails with one sentence.
*/}}
{{- define "vecmill.check" -}}
{{- $root := .root -}}
{{- $names := list -}}
{{- range .colours }}{{ $names = append $names .colour }}{{ end -}}
{{- if not (has $root.Values.active $names) -}}
{{- fail (printf "active is %s, but %s.enabled is false." $root.Values.active $root.Values.active) -}}
{{- end -}}
{{- $autoscaling := $root.Values.autoscaling -}}
{{- if gt (int $autoscaling.minReplicas) (int $autoscaling.maxReplicas) -}}
{{- fail "autoscaling.minReplicas is larger than autoscaling.maxReplicas." -}}
{{- end -}}
{{- if ne (empty $autoscaling.keda.authenticationRef) (empty $autoscaling.keda.authModes) -}}
{{- fail "autoscaling.keda.authenticationRef and autoscaling.keda.authModes need each other." -}}
{{- end -}}
{{- if and $root.Values.keys.metricsEntry (not $root.Values.keys.existingSecret) -}}
{{- fail "keys.metricsEntry names an entry of a Secret, but keys.existingSecret is empty." -}}
{{- end -}}
{{- if and $root.Values.certificateAuthority.existingConfigMap $root.Values.certificateAuthority.existingSecret -}}
{{- fail "certificateAuthority.existingConfigMap and certificateAuthority.existingSecret are both set. Name one of them." -}}
{{- end -}}
{{- include "vecmill.checkNetwork" $root -}}
{{- range .colours -}}
{{- include "vecmill.checkServer" . -}}
{{- include "vecmill.checkModels" . -}}
{{- include "vecmill.checkSinglePod" (dict "colour" . "enabled" (len $names)) -}}
{{- if eq .colour $root.Values.active }}{{ include "vecmill.checkSwitch" . }}{{ end -}}
{{- end -}}
{{- end }}

{{/* What comes from outside of the namespace would wait for an answer without any error in a log. */}}
{{- define "vecmill.checkNetwork" -}}
{{- $values := .Values -}}
{{- if and $values.networkPolicy.enabled (eq (toJson $values.networkPolicy.from) `[{"podSelector":{}}]`) -}}
{{- $outside := list -}}
{{- if $values.ingress.enabled }}{{ $outside = append $outside "ingress.enabled" }}{{ end -}}
{{- if $values.httpRoute.enabled }}{{ $outside = append $outside "httpRoute.enabled" }}{{ end -}}
{{- if $values.serviceMonitor.enabled }}{{ $outside = append $outside "serviceMonitor.enabled" }}{{ end -}}
{{- if ne $values.service.type "ClusterIP" }}{{ $outside = append $outside (printf "service.type %s" $values.service.type) }}{{ end -}}
{{- if $outside -}}
{{- fail (printf "%s: networkPolicy.from has only the pods of this namespace. Add the peers that connect from elsewhere, or set networkPolicy.enabled to false (docs/kubernetes.md)." (join ", " $outside)) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "vecmill.checkServer" -}}
{{- $c := . -}}
{{- $policy := .root.Values.networkPolicy -}}
{{- if and .server.tracing $policy.enabled (not $policy.egress) -}}
{{- fail (printf "config of %s has server.tracing, but networkPolicy.egress is empty, and no trace would arrive. Add a rule for the port of the collector, such as 4318." .colour) -}}
{{- end -}}
{{- range list "api_key" "metrics_key" -}}
{{- if hasKey $c.server . -}}
{{- fail (printf "config of %s has server.%s, and a ConfigMap is readable for many. Put keys into a Secret (keys.existingSecret)." $c.colour .) -}}
{{- end -}}
{{- end -}}
{{- range list "uds" "fd" -}}
{{- if hasKey $c.server . -}}
{{- fail (printf "config of %s has server.%s, but the pod must listen on a port. Remove it." $c.colour .) -}}
{{- end -}}
{{- end -}}
{{- if and (hasKey .server "api_key_file") (not .root.Values.keys.existingSecret) -}}
{{- fail (printf "config of %s has server.api_key_file. Name the Secret with the file in keys.existingSecret." .colour) -}}
{{- end -}}
{{- end }}

{{/* Pods start at different times. A branch may have moved in between, and the vectors of the pods would not be comparable. */}}
{{- define "vecmill.checkModels" -}}
{{- $c := . -}}
{{- if and .modelVolume.image .modelVolume.existingClaim -}}
{{- fail (printf "modelVolume of %s has an image and an existingClaim. Name one of them." .colour) -}}
{{- end -}}
{{- range $index, $model := .plans -}}
{{- if and (include "vecmill.isOnHub" $model.model) (not (regexMatch "@[0-9a-f]{40}$" $model.model)) -}}
{{- fail (printf "config of %s: models[%d].model %q names no commit, so pods could serve different weights. Write owner/name@ and the 40 digits of the commit." $c.colour $index $model.model) -}}
{{- end -}}
{{- /* The default engine is the choice of the image. In fp32 the vectors of engines are equal. In other precisions they differ by more, and the engine must be known. */ -}}
{{- if and $model.precision (ne $model.precision "fp32") (not $model.engine) -}}
{{- fail (printf "config of %s: models[%d] has the precision %s, but no engine. The engines of two images would compute different vectors. Write engine too." $c.colour $index $model.precision) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Files and batches are in a folder that one server uses, and a volume of ReadWriteOnce serves one node. */}}
{{- define "vecmill.checkSinglePod" -}}
{{- $c := .colour -}}
{{- if include "vecmill.isExclusive" $c -}}
{{- $reason := "cache.accessMode is ReadWriteOnce" -}}
{{- with get $c.server "batch_dir" -}}
{{- $reason = printf "config of %s has server.batch_dir, and other pods would not know its files" $c.colour -}}
{{- if ne . "/var/lib/vecmill" }}{{ fail (printf "config of %s: server.batch_dir must be /var/lib/vecmill, where the chart mounts the volume." $c.colour) }}{{ end -}}
{{- end -}}
{{- if include "vecmill.isAutoscaled" $c.root -}}
{{- fail (printf "%s, so there must be one pod. Disable autoscaling." $reason) -}}
{{- end -}}
{{- if gt (int $c.replicas) 1 -}}
{{- fail (printf "%s, so there must be one pod. Set replicas to 1." $reason) -}}
{{- end -}}
{{- if gt .enabled 1 -}}
{{- fail (printf "%s, so there must be one pod. Enable one colour only." $reason) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/*
Compare the active colour with what the cluster serves. Without a cluster (helm template, Argo CD) `lookup` finds nothing.
Then the immutable ConfigMap of deployment.yaml refuses other models.
*/}}
{{- define "vecmill.checkSwitch" -}}
{{- $root := .root -}}
{{- $service := lookup "v1" "Service" $root.Release.Namespace (include "vecmill.fullname" $root) -}}
{{- $before := dig "spec" "selector" "vecmill/colour" "" $service -}}
{{- /* A single pod is stopped before the new one starts, so the Service never has pods of two vector spaces. */ -}}
{{- $isExclusive := include "vecmill.isExclusive" . -}}
{{- if and (not $isExclusive) (eq $before .colour) (ne (dig "spec" "selector" "vecmill/vector-space" "" $service) .space) -}}
{{- $other := ternary "green" "blue" (eq .colour "blue") -}}
{{- fail (printf "%s is active and serves %s. With these values it would serve %s, and no pod would be ready for them. Enable %s with the new config, then set active to %s (docs/kubernetes.md)." .colour (dig "metadata" "annotations" "vecmill/models" "other models" $service) (include "vecmill.servedModels" .) $other $other) -}}
{{- end -}}
{{- if and $isExclusive $before (ne $before .colour) -}}
{{- fail (printf "active changes to %s, but there must be one pod. Keep active=%s and change its config: the pod stops before the next one starts." .colour $before) -}}
{{- end -}}
{{- if and $before (ne $before .colour) -}}
{{- $deployment := lookup "apps/v1" "Deployment" $root.Release.Namespace .name -}}
{{- $status := dig "status" dict $deployment -}}
{{- $isSame := eq .space (dig "spec" "template" "metadata" "labels" "vecmill/vector-space" "" $deployment) -}}
{{- $wanted := dig "spec" "replicas" 1 $deployment | int -}}
{{- $isReady := and (eq $wanted (dig "updatedReplicas" 0 $status | int)) (eq $wanted (dig "readyReplicas" 0 $status | int)) -}}
{{- if not (and $isSame $isReady (ge $wanted 1)) -}}
{{- fail (printf "active changes to %s, but not all pods of %s are ready with these models. Upgrade with %s.enabled=true and active=%s first, and wait until its pods are ready." .colour .colour .colour $before) -}}
{{- end -}}
{{- end -}}
{{- end }}
