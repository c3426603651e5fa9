{{/* Replace values of the map `into` by those of the map `from`, also inside of maps. An empty value is a value. */}}
{{- define "vecmill.overlay" -}}
{{- $into := .into -}}
{{- range $name, $value := .from -}}
{{- if and (kindIs "map" $value) (kindIs "map" (get $into $name)) -}}
{{- include "vecmill.overlay" (dict "into" (get $into $name) "from" $value) -}}
{{- else -}}
{{- $_ := set $into $name $value -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/*
Complete the dictionary of a colour, which has `root` and `colour`, by:
  enabled, config, image, modelVolume, replicas, resources, gpu   its values
  server, defaults    the tables of its configuration file
  served              a list of its models, with all keys that change answers (answer-keys.yaml)
  plans               a list of its models, each with `model`, `engine` and `precision`
  chosen              the options of its file that an image may set in its environment too
  text                the file for the pod: without the table [deploy], and without the options that the chart sets. Paths
                      of another machine are not copied, and a changed number of replicas starts no pod again
  space               the identity of its answers: equal for pods of which each answers to a name with vectors of the
                      same space. The engine, precision and device are not in it. Another way to make this hash would be
                      a change of the model for every release.
  name                the name of its Deployment
*/}}
{{- define "vecmill.resolve" -}}
{{- $c := . -}}
{{- $root := .root -}}
{{- $own := get $root.Values .colour | default dict -}}
{{- $_ := set $c "enabled" (get $own "enabled" | default false) -}}
{{- $values := deepCopy (pick $root.Values "config" "image" "modelVolume" "replicas" "resources" "gpu") -}}
{{- include "vecmill.overlay" (dict "into" $values "from" (omit $own "enabled")) -}}
{{- range $name, $value := $values }}{{ $_ := set $c $name $value }}{{ end -}}
{{- $_ := set $c "name" (printf "%s-%s" (include "vecmill.fullname" $root) .colour) -}}
{{- include "vecmill.readConfig" $c -}}
{{- end }}

{{- define "vecmill.readConfig" -}}
{{- $c := . -}}
{{- $file := fromToml .config -}}
{{- if hasKey $file "Error" }}{{ fail (printf "config of %s is not TOML: %s" .colour $file.Error) }}{{ end -}}
{{- $server := get $file "server" | default dict -}}
{{- $defaults := get $file "defaults" | default dict -}}
{{- $models := get $file "models" | default (list (dict "model" "all-MiniLM-L6-v2")) -}}
{{- if not (and (kindIs "map" $server) (kindIs "map" $defaults) (kindIs "slice" $models)) -}}
{{- fail (printf "config of %s: server and defaults must be tables, and [[models]] must be above each model." .colour) -}}
{{- end -}}
{{- $served := list -}}
{{- $plans := list -}}
{{- $chosen := ternary (list "model") list (hasKey $file "models") -}}
{{- range $key := list "engine" "precision" "device" -}}
{{- $isChosen := hasKey $defaults $key -}}
{{- range $models }}{{ if hasKey . $key }}{{ $isChosen = true }}{{ end }}{{ end -}}
{{- if $isChosen }}{{ $chosen = append $chosen $key }}{{ end -}}
{{- end -}}
{{- $keys := .root.Files.Get "answer-keys.yaml" | fromYaml -}}
{{- range $index, $model := $models -}}
{{- /* A value of its own counts, even an empty one. A default of the server is like no value, and no value is not in the hash: a key that is new changes the hash of no release. */ -}}
{{- $of := dict -}}
{{- range $key := $keys.models.changing -}}
{{- $value := ternary (get $model $key) (get $defaults $key) (hasKey $model $key) -}}
{{- if not (has $value (list "" false (list) nil)) }}{{ $_ := set $of $key $value }}{{ end -}}
{{- end -}}
{{- /* A directory is part of the image or of a volume, so another one may have another model there. */ -}}
{{- $_ := set $of "model" (get $model "model" | default "" | toString) -}}
{{- if include "vecmill.isInVolume" (list $c $of.model) -}}
{{- $_ := set $of "volume" (pick $c.modelVolume "image" "existingClaim") -}}
{{- else if include "vecmill.isDirectory" $of.model -}}
{{- $_ := set $of "image" (include "vecmill.image" $c) -}}
{{- end -}}
{{- $served = append $served $of -}}
{{- $plan := dict "model" (get $model "model" | default "" | toString) -}}
{{- range $key := list "engine" "precision" -}}
{{- $_ := set $plan $key (ternary (get $model $key) (get $defaults $key) (hasKey $model $key)) -}}
{{- end -}}
{{- $plans = append $plans $plan -}}
{{- end -}}
{{- $space := dict "models" $served "server" dict -}}
{{- range $key := $keys.server.changing -}}
{{- if hasKey $server $key }}{{ $_ := set $space.server $key (get $server $key) }}{{ end -}}
{{- end -}}
{{- $_ := set $c "server" $server -}}
{{- $_ := set $c "defaults" $defaults -}}
{{- $_ := set $c "served" $served -}}
{{- $_ := set $c "plans" $plans -}}
{{- $_ := set $c "chosen" $chosen -}}
{{- $_ := set $c "space" (toJson $space | sha256sum | trunc 16) -}}
{{- $_ := set $c "text" (include "vecmill.podConfig" $file) -}}
{{- end }}

{{- define "vecmill.podConfig" -}}
{{- $kept := omit . "deploy" -}}
{{- if hasKey . "server" }}{{ $_ := set $kept "server" (omit .server "host" "port" "api_key_file") }}{{ end -}}
{{- if hasKey . "defaults" }}{{ $_ := set $kept "defaults" (omit .defaults "cache_dir") }}{{ end -}}
{{- if hasKey . "models" -}}
{{- $models := list -}}
{{- range .models }}{{ $models = append $models (omit . "cache_dir") }}{{ end -}}
{{- $_ := set $kept "models" $models -}}
{{- end -}}
{{- toToml $kept | trim -}}
{{- end }}

{{/* "true" for a model that is a directory, "" for the embedded model and for a model of a hub. */}}
{{- define "vecmill.isDirectory" -}}
{{- if not (or (eq . "all-MiniLM-L6-v2") (include "vecmill.isOnHub" .)) }}true{{ end -}}
{{- end }}

{{/* "true" if a colour has a volume of models. */}}
{{- define "vecmill.hasModelVolume" -}}
{{- if or .modelVolume.image .modelVolume.existingClaim }}true{{ end -}}
{{- end }}

{{/* "true" for a model directory in the volume of models. The argument is a list of a colour and a model. */}}
{{- define "vecmill.isInVolume" -}}
{{- $path := (first .).modelVolume.path | trimSuffix "/" -}}
{{- if and (include "vecmill.hasModelVolume" (first .)) (hasPrefix (printf "%s/" $path) (printf "%s/" (last .))) }}true{{ end -}}
{{- end }}

{{- define "vecmill.isOnHub" -}}
{{- if regexMatch "^[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*(@.*)?$" . }}true{{ end -}}
{{- end }}

{{- define "vecmill.image" -}}
{{- .image.repository }}{{ if .image.digest }}@{{ .image.digest }}{{ else if .image.tag }}:{{ .image.tag }}{{ end -}}
{{- end }}

{{/* The models and precisions of a colour, for messages and annotations. */}}
{{- define "vecmill.servedModels" -}}
{{- $names := list -}}
{{- range .plans }}{{ $names = append $names (printf "%s %s" .model (.precision | default "") | trim) }}{{ end -}}
{{- join ", " $names -}}
{{- end }}

{{/* The name of the ConfigMap of a colour. It changes with the text, so that a pod never starts with the text of another. */}}
{{- define "vecmill.configMap" -}}
{{- printf "%s-%s" .name (.text | sha256sum | trunc 8) -}}
{{- end }}

{{/* The path of a route of the server. The argument is a list of a resolved colour and a path. */}}
{{- define "vecmill.path" -}}
{{- $prefix := get (first .).server "url_prefix" | default "" | toString | trimSuffix "/" -}}
{{- printf "%s%s" $prefix (last .) -}}
{{- end }}

{{/* "true" if an autoscaler sets the number of pods. */}}
{{- define "vecmill.isAutoscaled" -}}
{{- if or .Values.autoscaling.hpa.enabled .Values.autoscaling.keda.enabled }}true{{ end -}}
{{- end }}

{{/* "true" if a colour must stop its pod before it starts another: its volume serves one pod at a time. */}}
{{- define "vecmill.isExclusive" -}}
{{- $cache := .root.Values.cache -}}
{{- $once := and $cache.persistent (not $cache.existingClaim) (eq $cache.accessMode "ReadWriteOnce") -}}
{{- if or $once (get .server "batch_dir") }}true{{ end -}}
{{- end }}
