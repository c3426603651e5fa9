"""Pods that answer to a name in different ways have different hashes, for every key of the file."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from chart.rendering import CHART, render_text, select
from vecmill.config import MillConfig
from vecmill_server.base import config_file
from vecmill_server.base.config_file import read_config_file
from vecmill_server.base.options import list_settings
from vecmill_server.base.settings import ServerSettings
from vecmill_server.cli.served_models import read_served_models

KEYS: Mapping[str, Mapping[str, list[str]]] = yaml.safe_load((CHART / "answer-keys.yaml").read_text("utf-8"))
COMMIT = "0123456789abcdef0123456789abcdef01234567"

# Another value of each key that changes what a name answers.
CHANGES = {
    "alias": "['other']",
    "model": f"'owner/other@{COMMIT}'",
    "name": "'other'",
    "on_long_input": "'error'",
    "task": "'rerank'",
    "trust_remote_code": "true",
    "rerank_document": "'string'",
    "token_ids": "'native'",
}
# Another value of each key of a model that computes the same space in another way.
SAME_SPACE = {"device": "'cuda'", "engine": "'torch'", "precision": "'fp32'", "max_batch_tokens": "64"}
MODEL = f"[[models]]\nmodel = 'owner/name@{COMMIT}'\nname = 'docs'\nengine = 'onnx'\nprecision = 'int8'\n"


def test_each_key_of_the_file_is_declared_as_changing_answers_or_not(tmp_path: Path) -> None:
    """A new option has to be declared in answer-keys.yaml."""
    of_models = {each.field.name for each in list_settings(MillConfig)}
    of_server = {each.field.name for each in list_settings(ServerSettings)} - config_file.OF_A_MODEL
    # The other keys of a model, which the reader knows beside the settings.
    of_one = of_models | {"model", "name", "alias", "task", "trust_remote_code"}
    for table, known in (("server", of_server), ("models", of_one)):
        declared = [*KEYS[table]["changing"], *KEYS[table]["unchanging"]]
        assert len(declared) == len(set(declared)), table
        assert set(declared) == known, table
    path = tmp_path / "vecmill.toml"
    values = CHANGES | {"model": "'a'"}
    path.write_text(
        "[[models]]\n" + "\n".join(f"{key} = {values[key]}" for key in KEYS["models"]["changing"])
    )
    assert read_config_file(path).models  # so each of these is a key of a model


def test_each_key_that_changes_answers_is_tried() -> None:
    assert set(CHANGES) == {*KEYS["server"]["changing"], *KEYS["models"]["changing"]}
    assert {"model", "name", "alias", "task"} <= set(KEYS["models"]["changing"])
    assert set(SAME_SPACE) <= set(KEYS["models"]["unchanging"])


def hash_of(config: str, folder: Path, *arguments: str) -> str:
    """Return the hash by which the Service selects the pods of a configuration file."""
    (folder / "config.toml").write_text(config, encoding="utf-8")
    found = render_text("--set-file", f"config={folder / 'config.toml'}", *arguments)
    selector = select(tuple(yaml.safe_load_all(found)), "Service", "vecmill")["spec"]["selector"]
    return str(selector["vecmill/vector-space"])


def write(server: Mapping[str, str], defaults: Mapping[str, str], models: Sequence[Mapping[str, str]]) -> str:
    tables = [("[server]", server), ("[defaults]", defaults), *(("[[models]]", each) for each in models)]
    return "\n".join("\n".join([head, *(f"{k} = {v}" for k, v in table.items())]) for head, table in tables)


@pytest.mark.full
@pytest.mark.usefixtures("helm")
class TestHash:
    """The hash, as helm computes it."""

    def test_two_names_that_are_exchanged_are_another_hash(self, tmp_path: Path) -> None:
        one, two = (f"[[models]]\nmodel = 'owner/{each}@{COMMIT}'\n" for each in ("one", "two"))
        before = f"{one}name = 'a'\n{two}name = 'b'"
        after = f"{one}name = 'b'\n{two}name = 'a'"
        assert hash_of(before, tmp_path) != hash_of(after, tmp_path)

    @pytest.mark.parametrize("key", KEYS["models"]["changing"])
    def test_another_value_of_a_model_is_another_hash(self, tmp_path: Path, key: str) -> None:
        lines = [line for line in MODEL.splitlines() if not line.startswith(f"{key} =")]
        assert hash_of(MODEL, tmp_path) != hash_of("\n".join([*lines, f"{key} = {CHANGES[key]}"]), tmp_path)

    @pytest.mark.promise("space-identifies")
    @pytest.mark.parametrize("key", SAME_SPACE)
    def test_another_way_to_compute_the_same_space_is_the_same_hash(self, tmp_path: Path, key: str) -> None:
        lines = [line for line in MODEL.splitlines() if not line.startswith(f"{key} =")]
        assert hash_of(MODEL, tmp_path) == hash_of(
            "\n".join([*lines, f"{key} = {SAME_SPACE[key]}"]), tmp_path
        )

    @pytest.mark.parametrize("key", KEYS["server"]["changing"])
    def test_another_value_of_the_server_is_another_hash(self, tmp_path: Path, key: str) -> None:
        assert hash_of(MODEL, tmp_path) != hash_of(f"[server]\n{key} = {CHANGES[key]}\n{MODEL}", tmp_path)

    def test_a_default_counts_for_a_model_without_its_own_value(self, tmp_path: Path) -> None:
        models = [{"model": f"'owner/name@{COMMIT}'"}]
        own = [{**models[0], "task": "'rerank'"}]
        assert hash_of(write({}, {"task": "'rerank'"}, models), tmp_path) == hash_of(
            write({}, {}, own), tmp_path
        )
        assert hash_of(write({}, {"task": "'embed'"}, own), tmp_path) == hash_of(write({}, {}, own), tmp_path)
        # An empty value of its own is a value: the task of the model, not that of [defaults].
        emptied = [{**models[0], "task": "''"}]
        assert hash_of(write({}, {"task": "'rerank'"}, emptied), tmp_path) == hash_of(
            write({}, {}, models), tmp_path
        )

    def test_order_comments_and_limits_are_the_same_hash(self, tmp_path: Path) -> None:
        one = (
            f"[[models]]\nname = 'docs'\nprecision = 'int8'\nengine = 'onnx'\nmodel = 'owner/name@{COMMIT}'\n"
        )
        limits = "timeout_s = 5\nmax_batch_tokens = 64\nalias = []\ntrust_remote_code = false\n"
        server = "[server]\nport = 1\nlog_level = 'error'\nstrict = true\n[deploy]\nreplicas = 3\n# comment\n"
        assert hash_of(MODEL, tmp_path) == hash_of(f"{server}{one}{limits}", tmp_path)
        assert hash_of(MODEL, tmp_path) == hash_of(MODEL, tmp_path, "--set", "replicas=7")

    def test_generated_files_have_the_same_hash_if_and_only_if_they_answer_alike(
        self, tmp_path: Path
    ) -> None:
        texts = generate(Random(13), 60)
        found = [(answers_of(text, tmp_path), hash_of(text, tmp_path), text) for text in texts]
        for (one, hash_one, text_one), (two, hash_two, text_two) in combinations(found, 2):
            assert (one == two) is (hash_one == hash_two), f"{text_one}\n---\n{text_two}"
        assert len({hash_one for _, hash_one, _ in found}) < len(found)


def generate(random: Random, count: int) -> Iterator[str]:
    """Return configuration files with few values, so that some of them answer alike."""
    for _ in range(count):
        own = {"name": random.choice(("'a'", "'b'", "''")), "engine": "'onnx'", "precision": "'int8'"}
        left = {key: value for key, value in own.items() if key != "name" or random.random() < 0.5}
        if random.random() < 0.5:
            left["alias"] = random.choice(("['c']", "['d']"))
        defaults = {"timeout_s": f"{random.randint(1, 99)}"}
        yield write(
            {"port": f"{random.randint(1, 999)}"}, defaults, [{"model": f"'owner/name@{COMMIT}'", **left}]
        )


def answers_of(text: str, folder: Path) -> Any:
    """Return what a server with this file answers with, as the server decides it."""
    path = folder / "answers.toml"
    path.write_text(text, encoding="utf-8")
    (choice,) = read_served_models(path)
    return choice.model, choice.name, choice.aliases, choice.task
