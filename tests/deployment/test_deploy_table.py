"""The table [deploy], which `vecmill serve` checks and ignores, and what `vecmill deploy render` refuses."""

from pathlib import Path

import pytest

from deployment.configurations import LARGE, render_text
from vecmill.errors import InvalidConfig
from vecmill_server.base.config_file import read_config_file
from vecmill_server.base.deploy_settings import DeploySettings
from vecmill_server.deploy.command import Target


def write(folder: Path, text: str) -> Path:
    path = folder / "vecmill.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_table_is_read_and_changes_no_option_of_the_server(tmp_path: Path) -> None:
    found = read_config_file(write(tmp_path, "[deploy]\nimage = 'a:b'\ncores = 3\nmemory_mib = 512\n"))
    assert found.deploy == DeploySettings(image="a:b", cores=3, memory_mib=512)
    assert (dict(found.options), found.models) == ({}, ())
    assert read_config_file(write(tmp_path, "")).deploy == DeploySettings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("memory = 3", "deploy.memory is not known. Did you mean deploy.memory_mib?"),
        ("replica = 3", "deploy.replica is not known. Did you mean deploy.replicas?"),
        ("cores = 1.5", "deploy.cores must be an integer."),
        ("image = 3", "deploy.image must be a string."),
        ("image = ' '", "deploy.image must not be empty."),
        ("replicas = 0", "deploy.replicas must be at least 1."),
        ("memory_mib = -1", "deploy.memory_mib must be at least 1."),
        ("gpus = -1", "deploy.gpus must not be negative."),
        ("program = 'vecmill'", "deploy.program must be an absolute path."),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read_config_file(write(tmp_path, f"[deploy]\n{text}"))
    assert caught.value.message.startswith(f"{tmp_path}/vecmill.toml: ")
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("target", "text", "message"),
    [
        ("compose", "[server]\nprot = 1", "server.prot is not known. Did you mean server.port?"),
        ("compose", "[server]\nport = 70000", "port must be between 0 and 65535"),
        (
            "compose",
            "[[models]]\nmodel = 'a/b'\nmax_batch_tokens = 0",
            "models[0] (a/b): max_batch_tokens must",
        ),
        ("compose", "[server]\napi_key = ['k']", "server.api_key would be copied into the files"),
        ("systemd", "[server]\nmetrics_key = ['k']", "server.metrics_key would be copied into the files"),
        (
            "helm",
            "[server]\nbatch_dir = '/var/lib/vecmill'\n[deploy]\nreplicas = 2",
            "server.batch_dir needs deploy.replicas = 1.",
        ),
        ("helm", "[server]\nbatch_dir = '/srv'", "server.batch_dir must be /var/lib/vecmill for helm"),
        (
            "helm",
            "[server]\nresult_cache_dir = '/home/author/results'",
            "server.result_cache_dir must be below /var/cache/vecmill for helm",
        ),
        ("ray", "[server]\nbatch_dir = '/srv'", "server.batch_dir does not work on Ray"),
        ("ray", "[server]\nresult_cache_dir = '/srv'", "result_cache_memory_bytes do not work on Ray"),
        (
            "ray",
            "[server]\nbatch_dir = '/srv'\n[deploy]\nreplicas = 2",
            "server.batch_dir does not work on Ray",
        ),
        ("compose", "[[models]]\nmodel = './a'", "models[0].model is the relative path 'a', but the server"),
        ("compose", "[[models]]\nmodel = 'a/b/c'", "models[0].model is the relative path 'a/b/c'"),
        ("helm", "[[models]]\nmodel = '~/a'", "models[0].model is the relative path '~/a'"),
        ("compose", "[server]\napi_key_file = '~/keys'", "server.api_key_file is the relative path '~/keys'"),
        (
            "compose",
            "[server]\nmemory_budget_mib = 4096\nadmin_key_file = '/etc/keys'",
            "server.admin_key_file is not copied or mounted",
        ),
        ("helm", "[[models]]\nmodel = '/usr'", "models[0].model is /usr on this machine, which pods cannot"),
        ("ray", "[[models]]\nmodel = '/usr'", "models[0].model is /usr on this machine, which pods cannot"),
        (
            "helm",
            "[[models]]\nmodel = 'owner/name@main'",
            "models[0].model: 'owner/name@main' names no commit",
        ),
        (
            "helm",
            "[[models]]\nmodel = 'all-MiniLM-L6-v2'\nprecision = 'int8'",
            "models[0] has the precision int8",
        ),
        ("helm", "[server]\nuds = '/run/a'", "server.uds does not work in a container."),
        ("compose", "[server]\nfd = 3", "server.fd does not work in a container."),
        ("systemd", "[server]\nfd = 3", "systemd opens the socket. Remove server.fd."),
        ("systemd", "[server]\nhost = 'example.org'", "server.host must be an IP address there"),
        ("compose", "[server]\nport = 0", "server.port must not be 0 there"),
        ("systemd", "[deploy]\nprogram = '/home/u/bin/vecmill'", "deploy.program must not be in a home"),
        ("systemd", "[[models]]\nmodel = '/srv/my models'", "The path '/srv/my models' has a character"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(
    tmp_path: Path, target: str, text: str, message: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        render_text(tmp_path, Target(target), text)
    assert message in caught.value.message


def test_a_directory_that_looks_like_a_model_of_a_hub_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models/reranker").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidConfig, match="models/reranker"):
        render_text(tmp_path, Target.COMPOSE, "[[models]]\nmodel = 'models/reranker'")


def test_targets_with_one_server_note_that_they_have_one(tmp_path: Path) -> None:
    for target in Target:
        notes = " ".join(render_text(tmp_path, target, "[deploy]\nreplicas = 3").notes)
        note = f"{target} runs one server, not the 3 of deploy.replicas."
        assert (note in notes) == (target in (Target.COMPOSE, Target.SYSTEMD))


def test_a_directory_that_only_the_image_has_is_noted(tmp_path: Path) -> None:
    for target in (Target.COMPOSE, Target.HELM, Target.RAY):
        (note,) = [note for note in render_text(tmp_path, target, LARGE).notes if "reranker" in note]
        assert note.startswith("The image has to contain /nonexistent/models/reranker (models[1].model)")


def test_names_of_a_hub_and_missing_key_files_are_noted(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    text = f"[server]\napi_key_file = '{keys}'\n[[models]]\nmodel = 'models/m2@{'0' * 40}'"
    for target in Target:
        notes = " ".join(render_text(tmp_path, target, text).notes)
        assert "models[0].model: 'models/m2@" in notes
        assert "is no directory here, so it is taken for a model of a hub." in notes
        assert f"server.api_key_file: {keys} is not on this machine yet." in notes
    keys.write_text("key\n")
    for target in Target:
        assert "yet" not in " ".join(render_text(tmp_path, target, text).notes)
