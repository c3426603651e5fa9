// Validates custom resources, a JSON array on standard input, with the schemas of their definitions. Prints the errors as JSON.
import { HTTPRoute } from "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute";
import { ScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject";
import { PrometheusRule } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule";
import { ServiceMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor";
import { readFileSync } from "node:fs";

const kinds = { HTTPRoute, ScaledObject, PrometheusRule, ServiceMonitor };
const errors = [];
for (const resource of JSON.parse(readFileSync(0, "utf8"))) {
  try {
    new kinds[resource.kind](resource).validate();
  } catch (error) {
    errors.push(`${resource.kind}: ${error.message}`);
  }
}
console.log(JSON.stringify(errors));
