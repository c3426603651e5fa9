"""A configuration file becomes deployments: names, aliases, settings, mistakes as sentences; without Ray."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from deployment.configurations import STRICT, render_text
from support.tiny_models import save_tiny_bert
from vecmill.errors import InvalidConfig
from vecmill_ray.absolute_paths import absolute_model
from vecmill_ray.serving.model_plan import ServingPlan, aliases_of, on_all_interfaces, read_plan
from vecmill_ray.serving.ray_settings import RaySettings, check_host, controller_environment, format_url
from vecmill_server.app.origins import OriginRules
from vecmill_server.base.settings import ServerSettings
from vecmill_server.deploy.command import Target

FILE = """
[server]
port = 8001
alias = ["any-name", "second=two", "*"]

[defaults]
precision = "fp32"

[[models]]
model = "{folder}/one"
alias = ["text-embedding-3-small"]

[[models]]
model = "{folder}/two"
max_queue_texts = 7
"""


@pytest.fixture
def plan(tmp_path: Path) -> ServingPlan:
    for name in ("one", "two"):
        save_tiny_bert(tmp_path / name)
    path = tmp_path / "vecmill.toml"
    path.write_text(FILE.format(folder=tmp_path), encoding="utf-8")
    return read_plan(path, cores=3)


def test_each_model_has_a_deployment_with_its_own_settings(plan: ServingPlan) -> None:
    assert [(model.deployment, model.name) for model in plan.models] == [("one", "one"), ("two", "two")]
    configs = [model.choice.config for model in plan.models]
    assert [config.cores for config in configs if config] == [3, 3]
    assert [config.queue.max_queue_texts for config in configs if config][1] == 7


def test_a_replica_knows_the_aliases_of_its_model_alone(plan: ServingPlan) -> None:
    aliases = [model.settings.alias for model in plan.models]
    assert aliases == [("any-name", "*", "text-embedding-3-small"), ("second", "*")]
    assert plan.settings.alias == ("any-name", "second=two", "*", "text-embedding-3-small=one")


def test_a_model_may_have_another_name_than_its_own(tmp_path: Path) -> None:
    folder = save_tiny_bert(tmp_path / "one")
    path = tmp_path / "vecmill.toml"
    path.write_text(
        f"[[models]]\nmodel = '{folder}'\n[[models]]\nmodel = '{folder}'\nname = 'other'\n", "utf-8"
    )
    plan = read_plan(path, cores=1)
    assert [(model.deployment, model.name) for model in plan.models] == [("one", "one"), ("other", "other")]
    assert [model.choice.name for model in plan.models] == [None, "other"]


def test_an_alias_for_any_name_may_arrive_at_every_model() -> None:
    assert aliases_of("two", "one", ("*=one", "b", "c=two")) == ("*", "c")


def test_a_model_of_a_hub_is_planned_without_a_download(tmp_path: Path) -> None:
    path = tmp_path / "vecmill.toml"
    path.write_text('[[models]]\nmodel = "owner/a-model@abc"\n', encoding="utf-8")
    (model,) = read_plan(path, cores=1).models
    assert (model.deployment, model.name) == ("owner--a-model", "owner/a-model")


def test_a_file_without_models_means_the_embedded_model(tmp_path: Path) -> None:
    path = tmp_path / "vecmill.toml"
    path.write_text("", encoding="utf-8")
    found = read_plan(path, cores=1)
    assert [model.name for model in found.models] == ["all-MiniLM-L6-v2"]
    assert found.settings == ServerSettings()


def test_relative_paths_are_those_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tiny_bert(tmp_path / "here/model")
    (tmp_path / "all-MiniLM-L6-v2").mkdir()
    path = tmp_path / "vecmill.toml"
    lines = ("[server]", 'api_key_file = "keys"', "[defaults]", 'cache_dir = "cache"')
    path.write_text("\n".join((*lines, "[[models]]", 'model = "here/model"')), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    plan = read_plan(path, cores=1)
    (model,) = plan.models
    assert (model.name, model.choice.model) == ("model", str(tmp_path / "here/model"))
    assert plan.settings.api_key_file == tmp_path / "keys"
    assert model.choice.config is not None
    assert model.choice.config.cache_dir == tmp_path / "cache"
    unchanged = (None, "owner/a-model@abc", "all-MiniLM-L6-v2", "missing")
    assert tuple(absolute_model(name) for name in unchanged) == unchanged
    pair = absolute_model("image=owner/pictures,text=here/model")
    assert pair == f"text={tmp_path / 'here/model'},image=owner/pictures"


def test_several_nodes_need_the_address_of_all_interfaces() -> None:
    for host, nodes in (("127.0.0.1", 1), ("0.0.0.0", 2), ("::", 2)):
        check_host(host, nodes)
    for host in ("127.0.0.1", "10.0.0.1"):
        with pytest.raises(InvalidConfig, match=r'2 nodes, but on .* Write host = "0\.0\.0\.0"'):
            check_host(host, 2)
    assert format_url("::1", 7997, "/here") == "http://[::1]:7997/here"


def test_a_serve_of_others_is_not_on_a_loopback_address(plan: ServingPlan) -> None:
    public = [(b"host", b"vectors.example.com"), (b"user-agent", b"python")]
    for settings in (on_all_interfaces(plan).settings, on_all_interfaces(plan).models[1].settings):
        OriginRules.of(settings).check("POST", public)
        assert replace(settings, host=plan.settings.host, alias=()) == replace(plan.settings, alias=())


def test_files_and_batches_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "vecmill.toml"
    path.write_text(f'[server]\nbatch_dir = "{tmp_path}"\n', encoding="utf-8")
    with pytest.raises(InvalidConfig, match=r"server\.batch_dir does not work on Ray"):
        read_plan(path, cores=1)


def test_a_cache_of_results_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vecmill.toml"
    path.write_text("[server]\nresult_cache_memory_bytes = 1000000\n", encoding="utf-8")
    with pytest.raises(InvalidConfig, match=r"result_cache_memory_bytes do not work on Ray"):
        read_plan(path, cores=1)


def test_models_that_come_and_go_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "vecmill.toml"
    path.write_text("[server]\nmemory_budget_mib = 4096\n", encoding="utf-8")
    with pytest.raises(InvalidConfig, match=r"server\.memory_budget_mib does not work on Ray"):
        read_plan(path, cores=1)


def test_settings_without_effect_on_ray_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "vecmill.toml"
    path.write_text("[server]\nport = 8001\nmax_connections = 10\nprocesses = 2\n", encoding="utf-8")
    read_plan(path, cores=1)
    assert [record.message.partition(": ")[2] for record in caplog.records] == [
        "server.max_connections has no effect on Ray (docs/ray.md)",
        "server.processes has no effect on Ray (docs/ray.md)",
    ]


def test_two_models_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_tiny_bert(tmp_path / name / "same")
    path = tmp_path / "vecmill.toml"
    models = (f'[[models]]\nmodel = "{tmp_path}/{name}/same"\n' for name in ("a", "b"))
    path.write_text("".join(models), encoding="utf-8")
    with pytest.raises(InvalidConfig, match="Two models have the name 'same'"):
        read_plan(path, cores=1)


def test_arguments_are_converted_and_checked() -> None:
    found = RaySettings.of({"replicas": "2", "max_replicas": 4, "queue_s": "0.25"})
    assert found == RaySettings(replicas=2, max_replicas=4, queue_s=0.25)
    assert found.scales
    assert not RaySettings(replicas=2).scales


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"replica": 2}, "Did you mean replicas"),
        ({"fish": 2}, "The arguments are config, replicas"),
        ({"replicas": "two"}, "wrong type"),
        ({"replicas": 0}, "replicas must be at least 1"),
        ({"replicas": 3, "max_replicas": 2}, "max_replicas must not be less"),
        ({"queue_s": 0}, "queue_s must be more than 0"),
    ],
)
def test_a_wrong_argument_is_a_sentence(args: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        RaySettings.of(args)


def test_haproxy_has_requests_whole_before_it_sends_them_again() -> None:
    settings = replace(ServerSettings(), body_timeout_s=1.5)
    lines = controller_environment(settings)["RAY_SERVE_HAPROXY_RETRY_ON"].split("\n    ")
    assert lines == [
        "conn-failure empty-response",
        "option http-buffer-request",
        "timeout http-request 1500ms",
    ]


def test_the_manifest_gives_haproxy_the_same_lines(tmp_path: Path) -> None:
    text = STRICT.replace("[server]", "[server]\nbody_timeout_s = 7")
    service = yaml.safe_load(render_text(tmp_path, Target.RAY, text).files["ray-service.yaml"])
    (container,) = service["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    expected = controller_environment(replace(ServerSettings(), body_timeout_s=7))
    assert variables["RAY_SERVE_HAPROXY_RETRY_ON"] == expected["RAY_SERVE_HAPROXY_RETRY_ON"]
