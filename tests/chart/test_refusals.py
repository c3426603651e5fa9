"""The chart refuses values that cannot be right, and more than one pod with files and batches."""

import pytest

from chart.rendering import VALUE_FILES, config_of, container_of, deployments, refusal, render, select

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("chart_tools")]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--set", "replica=2"), "additional properties 'replica' not allowed"),
        (
            ("--set", "autoscaling.hpa.enabled=true,autoscaling.keda.enabled=true"),
            "at '/autoscaling/hpa/enabled': value must be false",
        ),
        (("--set-string", "env.VECMILL_PORT=1"), "invalid propertyName 'VECMILL_PORT'"),
        (("--set", "active=green"), "active is green, but green.enabled is false."),
        (("--set", "autoscaling.minReplicas=9"), "autoscaling.minReplicas is larger than"),
        (
            ("--set", "autoscaling.keda.authenticationRef=prometheus"),
            "autoscaling.keda.authModes need each other",
        ),
        (("--set", "keys.metricsEntry=metrics"), "keys.existingSecret is empty"),
        (("--set", "config=a b"), "config of blue is not TOML"),
        (("--set", "config=server = 1"), "server and defaults must be tables"),
        (("--set-json", r'config="[server]\napi_key = [\"x\"]"'), "Put keys into a Secret"),
        (("--set-json", r'config="[server]\nuds = \"/tmp/s\""'), "must listen on a port"),
        (("--set-json", r'config="[server]\napi_key_file = \"/keys\""'), "Name the Secret with the file"),
        (("--set-json", r'config="[[models]]\nmodel = \"owner/name\""'), "names no commit"),
        (("--set-json", r'config="[[models]]\nmodel = \"owner/name@main\""'), "names no commit"),
        (
            ("--set-json", r'config="[defaults]\nprecision = \"int8\""'),
            "has the precision int8, but no engine",
        ),
        (("--set", "cache.persistent=true,cache.accessMode=ReadWriteOnce"), "Set replicas to 1."),
        (
            ("--set", "certificateAuthority.existingConfigMap=a,certificateAuthority.existingSecret=b"),
            "are both set. Name one of them.",
        ),
        (("--set", "ingress.enabled=true"), "at '/ingress/hosts': minItems"),
        (("--set", "httpRoute.enabled=true"), "at '/httpRoute/parentRefs': minItems"),
        (
            ("--set", "ingress.enabled=true,ingress.hosts={embed.example},service.type=NodePort"),
            "ingress.enabled, service.type NodePort: networkPolicy.from has only the pods of this namespace.",
        ),
        (
            (
                "--set",
                "httpRoute.enabled=true,httpRoute.parentRefs[0].name=gateway,serviceMonitor.enabled=true",
            ),
            "httpRoute.enabled, serviceMonitor.enabled: networkPolicy.from has only",
        ),
        (
            ("--set-json", r'config="[server]\ntracing = true"'),
            "config of blue has server.tracing, but networkPolicy.egress is empty",
        ),
        (("--set", "prometheusRule.enabled=true"), "needs monitoring/vecmill-alerts.yaml in the chart"),
        (("--set", "dashboard.enabled=true"), "needs monitoring/vecmill-board.json in the chart"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_refused_with_a_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    assert sentence in refusal(*arguments)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("replicas=2", "Set replicas to 1."),
        ("autoscaling.hpa.enabled=true", "Disable autoscaling."),
        ("green.enabled=true", "Enable one colour only."),
    ],
)
def test_files_and_batches_are_on_exactly_one_pod(settings: str, sentence: str) -> None:
    said = refusal("--set", settings, values="batches")
    assert "other pods would not know its files, so there must be one pod." in said
    assert sentence in said


def test_the_pod_with_files_stops_before_its_successor_starts() -> None:
    deployment = select(render("batches"), "Deployment")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    mounts = {mount["name"]: mount["mountPath"] for mount in container_of(deployment)["volumeMounts"]}
    assert f'batch_dir = "{mounts["batches"]}"' in config_of(deployment, "batches")


def test_without_a_folder_there_are_no_files() -> None:
    for values in VALUE_FILES:
        if values != "batches":
            assert all("batch_dir" not in config_of(each, values) for each in deployments(values))
