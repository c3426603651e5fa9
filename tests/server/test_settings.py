"""Every setting is an option and an environment variable, with the default of its field."""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import click
import pytest
from click.testing import CliRunner

from vecmill.config import BatchConfig, InputConfig, MillConfig, QueueConfig
from vecmill.errors import InvalidConfig
from vecmill_server.base.options import build_settings, settings_options
from vecmill_server.base.settings import LogFormat, MetricAliases, ServerSettings, TokenIds
from vecmill_server.base.time_limit import limit_time
from vecmill_server.cli.help_groups import GROUPS
from vecmill_server.cli.serve import serve


def probe() -> tuple[click.Command, dict[str, Any]]:
    """A command with the options of `serve` that only keeps what it is told."""
    told: dict[str, Any] = {}

    @click.command(context_settings={"auto_envvar_prefix": "VECMILL"})
    @settings_options(ServerSettings, MillConfig)
    def keep(**values: Any) -> None:
        told.update(values)

    return keep, told


def read(*arguments: str, **environment: str) -> tuple[ServerSettings, MillConfig]:
    command, told = probe()
    result = CliRunner().invoke(command, arguments, env=environment, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return build_settings(ServerSettings, told), build_settings(MillConfig, told)


def field_names(kind: type) -> list[str]:
    hints = get_type_hints(kind)
    return [
        name
        for field in fields(kind)
        for name in (field_names(hints[field.name]) if is_dataclass(hints[field.name]) else [field.name])
    ]


def test_without_options_everything_has_its_default() -> None:
    assert read() == (ServerSettings(), limit_time(MillConfig()))


def test_options_reach_the_nested_settings() -> None:
    settings, config = read(
        "--port", "8123", "--token-ids", "native", "--alias", "a", "--alias", "b", "--uds", "/x",
        "--no-access-log", "--max-queue-texts", "7", "--max-batch-tokens", "9", "--cores", "3",
        "--log-format", "json",
    )  # fmt: skip
    assert (settings.port, settings.token_ids, settings.alias) == (8123, TokenIds.NATIVE, ("a", "b"))
    assert (settings.uds, settings.access_log, settings.log_format) == (Path("/x"), False, LogFormat.JSON)
    assert (config.queue.max_queue_texts, config.batch.max_batch_tokens, config.cores) == (7, 9, 3)


def test_the_environment_counts_and_the_command_line_wins() -> None:
    settings, config = read(
        "--host",
        "::1",
        VECMILL_HOST="0.0.0.0",
        VECMILL_PORT="8123",
        VECMILL_API_KEY="a b",
        VECMILL_MAX_INPUTS="5",
        VECMILL_METRIC_ALIASES="tei infinity",
    )
    assert (settings.host, settings.port, settings.api_key) == ("::1", 8123, ("a", "b"))
    assert config.inputs.max_inputs == 5
    assert settings.metric_aliases == (MetricAliases.TEI, MetricAliases.INFINITY)


def test_help_explains_every_setting() -> None:
    text = " ".join(CliRunner().invoke(serve, ["--help"]).output.split())
    names = field_names(ServerSettings) + field_names(MillConfig)
    assert len(names) == len(set(names))
    for name in names:
        assert f"--{name.replace('_', '-')}" in text
        assert f"VECMILL_{name.upper()}" in text
    assert "7997" in text
    assert "VECMILL_TOKEN_IDS; default: refuse]" in text


def test_help_has_every_option_in_one_group() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == {each.name for each in serve.params if isinstance(each, click.Option)}
    text = CliRunner().invoke(serve, ["--help"]).output
    assert [text.index(f"\n{title}:") for title in GROUPS] == sorted(
        text.index(f"\n{title}:") for title in GROUPS
    )
    assert "Other options:\n  -h, --help" in text


@pytest.mark.promise("keys-checked")
def test_the_keys_are_not_in_the_repr() -> None:
    assert "secret" not in repr(ServerSettings(api_key=("secret",)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": -1},
        {"port": 65_536},
        {"host": ""},
        {"url_prefix": "api"},
        {"url_prefix": "/api/"},
        {"api_key": ("",)},
        {"alias": (" ",)},
        {"max_body_bytes": 0},
        {"max_header_bytes": 10},
        {"header_timeout_s": 0},
        {"body_timeout_s": -1},
        {"keep_alive_s": 0},
        {"lame_duck_s": -1},
        {"drain_s": -1},
    ],
)
def test_what_cannot_work_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match=next(iter(wrong))):
        ServerSettings(**wrong)


@pytest.mark.parametrize(
    ("kind", "name", "least"),
    [
        (BatchConfig, "max_batch_tokens", 1),
        (BatchConfig, "bulk_s", 0.001),
        (BatchConfig, "interactive_weight", 1),
        (QueueConfig, "max_queue_tokens", 1),
        (QueueConfig, "max_queue_texts", 1),
        (QueueConfig, "target_wait_s", 0.001),
        (QueueConfig, "timeout_s", 0.001),
        (InputConfig, "max_inputs", 1),
        (InputConfig, "max_text_characters", 1),
        (InputConfig, "max_request_characters", 1),
        (InputConfig, "max_request_tokens", 1),
        (InputConfig, "max_counted_characters", 0),
        (MillConfig, "cores", 1),
        (MillConfig, "hang_s", 0.001),
    ],
)
def test_limits_of_a_model_have_a_least_value(kind: type, name: str, least: float) -> None:
    assert getattr(kind(**{name: least}), name) == least
    with pytest.raises(InvalidConfig, match=name):
        kind(**{name: 0 if least else -1})


def test_models_may_be_named_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert serve.make_context("serve", []).params["models"] == ()
    monkeypatch.setenv("VECMILL_MODEL", "a-folder owner/name@main")
    assert serve.make_context("serve", []).params["models"] == ("a-folder", "owner/name@main")
    assert serve.make_context("serve", ["another"]).params["models"] == ("another",)
