"""`vecmill serve --config FILE`: what a file may say, what goes before it, and how mistakes are named."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from vecmill.config import MillConfig
from vecmill.errors import InvalidConfig
from vecmill.values.engine_plan import Precision
from vecmill.values.task import Task
from vecmill_server.base.config_file import ConfiguredModel, read_config_file
from vecmill_server.base.settings import LogFormat, ServerSettings
from vecmill_server.catalog.model_choice import ModelChoice
from vecmill_server.cli import serve as cli
from vecmill_server.cli.container_health import find_target
from vecmill_server.service import service

WHOLE = """
[server]
port = 8001
uds_mode = "600"
alias = ["*"]
access_log = false
drain_s = 3
log_format = "json"

[defaults]
precision = "fp32"
max_batch_tokens = 256
cores = 1

[[models]]
model = "models/first"

[[models]]
model = "owner/second@abc"
alias = ["text-embedding-3-small", "other"]
task = "rerank"
trust_remote_code = true
precision = "int8"
timeout_s = 10
cache_dir = "/var/cache/second"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "vecmill.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_sets_options_and_models(tmp_path: Path) -> None:
    found = read_config_file(write(tmp_path, WHOLE))
    assert found.options == {
        "port": 8001,
        "uds_mode": "600",
        "alias": ("*",),
        "access_log": False,
        "drain_s": 3.0,
        "log_format": LogFormat.JSON,
        "precision": Precision.FP32,
        "max_batch_tokens": 256,
        "cores": 1,
    }
    assert found.models == (
        ConfiguredModel("models/first", {}),
        ConfiguredModel(
            "owner/second@abc",
            {"precision": Precision.INT8, "timeout_s": 10.0, "cache_dir": Path("/var/cache/second")},
            aliases=("text-embedding-3-small", "other"),
            task=Task.RERANK,
            trusts_code=True,
        ),
    )


def test_a_file_may_give_a_model_another_name(tmp_path: Path) -> None:
    file = read_config_file(write(tmp_path, "[[models]]\nmodel = 'models/a=b'\nname = 'of the file'"))
    assert [model.name for model in file.models] == ["of the file"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[server]\nprot = 1", "server.prot is not known. Did you mean server.port?"),
        ("[serve]\nport = 1", "serve is not known. Did you mean server?"),
        ("[server]\nurl-prefx = 'a'", "server.url-prefx is not known. Did you mean server.url_prefix?"),
        (
            "[server]\nprecision = 'int8'",
            "The key belongs in [defaults] or [[models]].",
        ),
        ("[server]\ntask = ['rerank']", "server.task is not known. The key belongs in [[models]]."),
        (
            "[[models]]\nmodel = 'a'\ncores = 2",
            "The key belongs in [defaults] or [deploy].",
        ),
        ("[[models]]\nmodel = 'a'\nprecison = 'int8'", "Did you mean models[0].precision?"),
        (
            "[[models]]\nengine = 'onnx'",
            "models[0].model is missing. It is a directory, or owner/name on a hub.",
        ),
        ("[[models]]\nmodel = 'a'\n[[models]]\nmodel = 3", "models[1].model must be a string."),
        ("models = ['a']", "models[0] must be a table."),
        ("[models]\nmodel = 'a'", "models must be a list of tables. Write [[models]] above each model."),
        ("server = 3", "server must be a table."),
        ("[server]\nport = '80'", "server.port must be an integer."),
        ("[server]\nport = true", "server.port must be an integer."),
        ("[server]\ndrain_s = 'soon'", "server.drain_s must be a number."),
        ("[server]\naccess_log = 0", "server.access_log must be true or false."),
        ("[server]\nalias = 'a'", 'server.alias must be a list. Write alias = ["..."].'),
        ("[server]\napi_key = 'secret'", 'server.api_key must be a list. Write api_key = ["..."].'),
        ("[server]\nalias = ['a', 1]", "server.alias[1] must be a string."),
        ("[server]\nlog_format = 'xml'", "server.log_format must be one of text, json."),
        ("[defaults]\nprecision = 'int4'", "defaults.precision must be one of "),
        ("[server\nport = 1", "is not TOML: "),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InvalidConfig) as caught:
        read_config_file(path)
    assert caught.value.message.startswith(str(path))
    assert message in caught.value.message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"none\.toml cannot be read: No such file or directory"):
        read_config_file(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"a = '\xe4'")
    with pytest.raises(InvalidConfig, match=r"latin\.toml is not TOML: "):
        read_config_file(tmp_path / "latin.toml")


class Started(Exception):
    """The command got as far as loading the service."""

    def __init__(self, models: Sequence[ModelChoice], settings: ServerSettings, config: MillConfig) -> None:
        super().__init__()
        self.models, self.settings, self.config = models, settings, config


def start(
    monkeypatch: pytest.MonkeyPatch, *arguments: str, environment: dict[str, str] | None = None
) -> Started:
    def load(*loaded: Any) -> None:
        raise Started(*loaded)

    monkeypatch.setattr(service, "create_service", load)
    found = CliRunner().invoke(cli.serve, list(arguments), env=environment).exception
    assert isinstance(found, Started), found
    return found


def test_the_command_line_and_the_environment_go_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(write(tmp_path, WHOLE.replace('log_format = "json"', "")))
    found = start(monkeypatch, "--config", path)
    assert (found.settings.port, found.settings.drain_s, found.config.cores) == (8001, 3.0, 1)
    configs = [choice.config for choice in found.models if choice.config is not None]
    assert [config.precision for config in configs] == [Precision.FP32, Precision.INT8]
    assert [config.queue.timeout_s for config in configs] == [30.0, 10.0]
    assert [config.batch.max_batch_tokens for config in configs] == [256, 256]

    changed = start(
        monkeypatch,
        *("--config", path, "--precision", "bf16"),
        environment={"VECMILL_PORT": "8002", "VECMILL_TIMEOUT_S": "7"},
    )
    assert changed.settings.port == 8002
    configs = [choice.config for choice in changed.models if choice.config is not None]
    assert [(config.precision, config.queue.timeout_s) for config in configs] == [(Precision.BF16, 7.0)] * 2

    by_variable = start(monkeypatch, "named", environment={"VECMILL_CONFIG": path})
    assert [choice.model for choice in by_variable.models] == ["named"]
    assert by_variable.settings.port == 8001


def test_a_mistake_ends_the_command_with_a_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.serve, ["--config", str(write(tmp_path, "[server]\nprot = 1"))])
    assert result.exit_code == 2
    assert "server.prot is not known. Did you mean server.port?" in " ".join(result.output.split())
    bad = write(tmp_path, "[[models]]\nmodel = 'a'\nmax_batch_tokens = 0")
    result = CliRunner().invoke(cli.serve, ["--config", str(bad)])
    assert isinstance(result.exception, InvalidConfig)
    assert result.exception.message.startswith("models[0] (a): max_batch_tokens must be at least 1")


def test_the_health_check_follows_the_file(tmp_path: Path) -> None:
    path = str(write(tmp_path, '[server]\nport = 8001\nurl_prefix = "/embed"\nhost = "0.0.0.0"\n'))
    target = find_target(["vecmill", "serve", "--config", path], {})
    assert (target.host, target.port, target.url_prefix) == ("127.0.0.1", 8001, "/embed")
    target = find_target(["vecmill", "serve"], {"VECMILL_CONFIG": path, "VECMILL_PORT": "8002"})
    assert (target.port, target.url_prefix) == (8002, "/embed")


def test_a_key_file_is_found_from_the_folder_of_the_file_whatever_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "deployed", tmp_path / "elsewhere"
    for each in (folder, elsewhere):
        each.mkdir()
        (each / "keys").write_text("search a-key\n", "utf-8")
    path = folder / "vecmill.toml"
    monkeypatch.chdir(elsewhere)
    for written, found in (
        ("keys", folder / "keys"),
        ("../deployed/./keys", folder / "keys"),
        ("/etc/vecmill/keys", Path("/etc/vecmill/keys")),
        ("~/keys", Path("~/keys")),
    ):
        names = ("api_key_file", "admin_key_file")
        path.write_text("\n".join(["[server]", *(f"{name} = '{written}'" for name in names)]), "utf-8")
        for named in (path, Path("../deployed/vecmill.toml")):
            assert [read_config_file(named).options[name] for name in names] == [found, found]
    (tmp_path / "link.toml").symlink_to(path)
    path.write_text("[server]\napi_key_file = 'keys'", "utf-8")
    assert read_config_file(tmp_path / "link.toml").options["api_key_file"] == tmp_path / "keys"
