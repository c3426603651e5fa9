"""A Kubernetes API server with a few objects, for `lookup` in templates. It stores nothing."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# The kinds of the chart: the path of the API group, and each resource with its kind, as discovery lists them.
RESOURCES = {
    "/api/v1": {
        "services": "Service",
        "configmaps": "ConfigMap",
        "persistentvolumeclaims": "PersistentVolumeClaim",
    },
    "/apis/apps/v1": {"deployments": "Deployment"},
    "/apis/networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy"},
    "/apis/policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
}


def describe_group(path: str) -> dict[str, Any]:
    """Return a group of the API as discovery lists it."""
    _, _, name, version = path.split("/")
    preferred = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [preferred], "preferredVersion": preferred}


def answers_of(objects: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the response of each path of a cluster with `objects`, which are of the kinds of `RESOURCES`."""
    groups = [describe_group(path) for path in RESOURCES if path.startswith("/apis/")]
    answers: dict[str, Any] = {
        "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
    }
    for path, kinds in RESOURCES.items():
        answers[path] = {
            "kind": "APIResourceList",
            "groupVersion": path.removeprefix("/apis/").removeprefix("/api/"),
            "resources": [
                {"name": name, "namespaced": True, "kind": kind, "singularName": "", "verbs": ["get"]}
                for name, kind in kinds.items()
            ],
        }
        for name, kind in kinds.items():
            for found in (each for each in objects if each["kind"] == kind):
                metadata = found["metadata"]
                answers[f"{path}/namespaces/{metadata['namespace']}/{name}/{metadata['name']}"] = found
    return answers


@contextmanager
def serve_cluster(folder: Path, objects: list[Mapping[str, Any]]) -> Iterator[Path]:
    """Yield a kubeconfig, written to `folder`, of a cluster with `objects`."""
    answers = answers_of(objects)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            missing = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "reason": "NotFound",
                "code": 404,
            }
            body = json.dumps(answers.get(path, missing)).encode()
            self.send_response(200 if path in answers else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield write_kubeconfig(folder / "kubeconfig", server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def write_kubeconfig(path: Path, port: int) -> Path:
    """Write the kubeconfig of a cluster on this machine, as JSON, which is YAML too."""
    name = "fake"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "users": [{"name": name, "user": {}}],
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
