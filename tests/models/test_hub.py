"""Models of a hub: fetched once, only what is needed, and served without the hub from then on.

Commands run in the process of the test, except for those that are interrupted or that show a bar, and for one
that proves that the client finds hub and cache by the environment, which it reads once.
"""

import contextlib
import hashlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import safetensors.torch
from click.testing import CliRunner, Result
from huggingface_hub import constants

from support.fake_hub import TOKEN, FakeHub, Repository, point_client_at, run_fake_hub
from support.forked_process import ForkedProcess
from support.http_server import wait_until
from support.pytorch_files import save_with_torch
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.commands.main import main
from vecmill.models.hub import HubName, find_pytorch_weights

NAME = "owner/tiny-model"
NOWHERE = "http://127.0.0.1:9"
NEVER = ("pytorch_model.bin", "model.pt", "modeling_own.py", "onnx/model.onnx", "README.md", "tf_model.h5")


@dataclass(frozen=True, slots=True)
class Client:
    """The command, with the environment that a user would set."""

    hub: FakeHub
    home: Path

    def run(self, *arguments: str, url: str | None = None, offline: bool = False, token: str = "") -> Result:
        """Run the command here, with the hub at `url` if it is another."""
        with pytest.MonkeyPatch.context() as patch:
            hub = self.hub if url is None else FakeHub(url)
            point_client_at(hub, self.home / "hub", patch)
            patch.setattr(constants, "HF_HUB_OFFLINE", offline)
            patch.setattr(constants, "HF_TOKEN_PATH", str(self.home / "token"))
            patch.setenv("HF_TOKEN", token)
            return CliRunner().invoke(main, arguments, prog_name="vecmill")

    def start(
        self, *arguments: str, stdout: int = subprocess.DEVNULL, stderr: int = subprocess.DEVNULL
    ) -> "subprocess.Popen[bytes]":
        """Start the command in a process of its own."""
        command = [sys.executable, "-m", "vecmill", *arguments]
        return ForkedProcess[bytes](command, env=self._environment, stdout=stdout, stderr=stderr)

    def run_on_terminal(self, *arguments: str) -> tuple[int, str]:
        """The exit status of the command, which is executed, and what a terminal got from it."""
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 100))
        command = [sys.executable, "-m", "vecmill", *arguments]
        running = subprocess.Popen(command, env=self._environment, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the other side is closed
            while part := os.read(ours, 65_536):
                shown += part
        os.close(ours)
        return running.wait(timeout=60), shown.decode()

    @property
    def _environment(self) -> dict[str, str]:
        names = (
            "HF_HUB_CACHE",
            "HF_HOME",
            "HF_TOKEN",
            "HF_HUB_OFFLINE",
            "HTTP_PROXY",
            "http_proxy",
            "ALL_PROXY",
        )
        clean = {name: value for name, value in os.environ.items() if name not in names}
        settings = {"HF_ENDPOINT": self.hub.url, "HF_HOME": str(self.home), "NO_PROXY": "127.0.0.1"}
        return {**clean, **settings}

    @property
    def fetched(self) -> set[str]:
        """The files that are in the cache."""
        snapshots = [*self.home.glob("hub/models--*/snapshots/*")]
        return {
            str(path.relative_to(folder))
            for folder in snapshots
            for path in folder.rglob("*")
            if path.is_file()
        }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    directory = save_tiny_bert(tmp_path_factory.mktemp("hub") / "model", TinyBert())
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


@pytest.fixture
def client(files: dict[str, bytes], tmp_path: Path) -> Iterator[Client]:
    with run_fake_hub() as hub:
        hub.repositories[NAME] = Repository({**files, **dict.fromkeys(NEVER, b"never")}, ("main", "v1"))
        yield Client(hub, tmp_path / "home")


def test_only_what_is_read_is_fetched(client: Client, files: dict[str, bytes]) -> None:
    running = client.start("pull", NAME, stdout=subprocess.PIPE)
    shown, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert shown.decode().startswith(f"{NAME} is in {client.home}")
    assert client.fetched == set(files)
    assert not {path for path, _ in client.hub.served} & set(NEVER)


def test_progress_is_one_bar_on_a_terminal(client: Client, files: dict[str, bytes]) -> None:
    client.hub.repositories[NAME] = Repository({**files, "large.txt": os.urandom(17 * 2**20)})
    code, shown = client.run_on_terminal("pull", NAME)
    assert code == 0, shown
    *parts, _ = re.split(r"[\r\n]+", shown)
    bars = [part for part in parts if "%|" in part]
    assert bars[-1].startswith(f"{NAME}: 100%|")
    assert all(part.startswith(f"{NAME}: ") for part in bars)
    assert [part for part in parts if part.strip() and part not in bars and " is in " not in part] == []


def test_progress_is_a_few_lines_elsewhere(client: Client, files: dict[str, bytes]) -> None:
    client.hub.repositories[NAME] = Repository({**files, "large.txt": os.urandom(17 * 2**20)})
    lines = client.run("pull", NAME).stderr.splitlines()
    assert lines[0].startswith(f"downloading {NAME}: {len(files) + 1} files, 18.")
    assert lines[-1] == f"downloading {NAME}: 100%"
    assert len(lines) <= 11


def test_every_command_that_downloads_tells_the_progress(client: Client, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text('{"text": "a"}\n')
    arguments = (str(tmp_path / "texts.jsonl"), "-o", str(tmp_path / "vectors.npy"), "--model", NAME)
    done = client.run("embed", *arguments, "--engine", "fake")
    assert done.exit_code == 0, done.stderr
    assert f"downloading {NAME}: 100%" in done.stderr.splitlines()


def test_an_interrupted_download_says_how_to_continue(client: Client, files: dict[str, bytes]) -> None:
    client.hub.repositories[NAME] = Repository({**files, "large.txt": os.urandom(17 * 2**20)})
    client.hub.stalled.add("large.txt")
    running = client.start("pull", NAME, stderr=subprocess.PIPE)
    wait_until(lambda: "large.txt" in {path for path, _ in client.hub.served}, patience_s=60)
    running.send_signal(signal.SIGINT)
    _, shown = running.communicate(timeout=30)
    assert running.returncode == 130
    assert shown.endswith(b"Interrupted. The same command continues the download.\n")


@pytest.mark.parametrize("revision", ["", "@v1"])
def test_what_was_fetched_is_served_without_the_hub(client: Client, revision: str) -> None:
    assert client.run("pull", NAME + revision).exit_code == 0
    client.hub.asked.clear()
    for done in (
        client.run("describe", NAME + revision, url=NOWHERE),
        client.run("describe", NAME + revision, offline=True),
    ):
        assert done.exit_code == 0, done.stderr
        assert f"name           {NAME}\n" in done.stdout
    assert client.hub.asked == []


def test_a_commit_is_never_asked_for_again(client: Client) -> None:
    pinned = f"{NAME}@{client.hub.repositories[NAME].commit}"
    assert client.run("pull", pinned).exit_code == 0
    client.hub.asked.clear()
    assert client.run("describe", pinned).exit_code == 0
    assert [path for path in client.hub.asked if NAME in path] == []


def test_a_broken_connection_goes_on_where_it_stopped(
    client: Client, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 2**20)  # that the client writes at a time
    large = os.urandom(3 * 2**20)
    client.hub.repositories[NAME] = Repository({**files, "large.txt": large})
    client.hub.cut_short.add("large.txt")
    done = client.run("pull", NAME)
    assert done.exit_code == 0, done.stderr
    (stored,) = client.home.glob("hub/models--*/snapshots/*/large.txt")
    assert stored.read_bytes() == large
    assert [wanted for path, wanted in client.hub.served if path == "large.txt"] == [
        None,
        f"bytes={2**20}-",
    ]


def test_a_killed_download_goes_on_where_it_stopped(client: Client, files: dict[str, bytes]) -> None:
    large = os.urandom(24 * 2**20)
    client.hub.repositories[NAME] = Repository({**files, "large.txt": large})
    client.hub.stalled.add("large.txt")
    first = client.start("pull", NAME)
    partial = client.home / "hub/models--owner--tiny-model/blobs"
    wait_until(lambda: largest_partial_bytes(partial) >= 10 * 2**20)
    first.kill()
    first.wait()
    begun = largest_partial_bytes(partial)
    client.hub.stalled.clear()
    done = client.run("pull", NAME)
    assert done.exit_code == 0, done.stderr
    (stored,) = client.home.glob("hub/models--*/snapshots/*/large.txt")
    assert stored.read_bytes() == large
    assert [wanted for path, wanted in client.hub.served if path == "large.txt"] == [None, f"bytes={begun}-"]
    assert not [*partial.glob("*.incomplete")]


def largest_partial_bytes(folder: Path) -> int:
    """The size of the largest partial file, 0 if there is none."""
    sizes = [0]
    for path in folder.glob("*.incomplete"):
        with contextlib.suppress(FileNotFoundError):  # it has just become complete
            sizes.append(path.stat().st_size)
    return max(sizes)


def test_an_interrupt_ends_a_download_that_has_stalled(client: Client) -> None:
    client.hub.stalled.add("tokenizer.json")
    with client.start("pull", NAME) as running:
        wait_until(lambda: "tokenizer.json" in {path for path, _ in client.hub.served}, patience_s=60)
        running.send_signal(signal.SIGINT)
        try:
            assert running.wait(timeout=5) == 130
        finally:
            running.kill()


def test_what_was_left_of_another_file_is_fetched_again(client: Client, files: dict[str, bytes]) -> None:
    large = os.urandom(2**20)
    client.hub.repositories[NAME] = Repository(
        {**files, "large.txt": large}, is_large=frozenset({"large.txt"})
    )
    blobs = client.home / "hub/models--owner--tiny-model/blobs"
    blobs.mkdir(parents=True)
    left = blobs / f"{hashlib.sha256(large).hexdigest()}.incomplete"
    left.write_bytes(b"something else")
    assert client.run("pull", NAME).exit_code == 0
    assert [wanted for path, wanted in client.hub.served if path == "large.txt"] == ["bytes=14-", None]
    (stored,) = client.home.glob("hub/models--*/snapshots/*/large.txt")
    assert stored.read_bytes() == large
    assert not left.exists()


def test_exported_graphs_are_fetched_when_asked_for(client: Client, files: dict[str, bytes]) -> None:
    exported = {"onnx/model.onnx", "onnx/model.onnx_data", "onnx/model_int8.onnx", "onnx/tokenizer.json"}
    contents = {**files, **dict.fromkeys(exported, b"graph")}
    client.hub.repositories[NAME] = Repository(contents)
    assert client.run("pull", NAME).exit_code == 0
    assert client.fetched == set(files)
    assert client.run("pull", NAME, "--onnx").exit_code == 0
    assert client.fetched == {*files, "onnx/model.onnx", "onnx/model.onnx_data"}


def test_graphs_of_texts_and_of_pictures_are_fetched_together(
    client: Client, files: dict[str, bytes]
) -> None:
    towers = {"onnx/text_model.onnx", "onnx/vision_model.onnx", "onnx/vision_model.onnx_data"}
    others = {"onnx/text_model_q4.onnx", "onnx/vision_model_quantized.onnx"}
    client.hub.repositories[NAME] = Repository({**files, **dict.fromkeys(towers | others, b"graph")})
    assert client.run("pull", NAME, "--onnx").exit_code == 0
    assert client.fetched == {*files, *towers}


@pytest.fixture
def old_files(files: dict[str, bytes], tmp_path: Path) -> dict[str, bytes]:
    """The same model, with weights as PyTorch writes them instead of safetensors."""
    tensors = safetensors.torch.load(files["model.safetensors"])
    weights = save_with_torch(tmp_path / "weights.bin", tensors).read_bytes()
    kept = {name: content for name, content in files.items() if name != "model.safetensors"}
    return {**kept, "pytorch_model.bin": weights}


def test_pytorch_weights_are_fetched_where_there_are_no_safetensors(
    client: Client, old_files: dict[str, bytes]
) -> None:
    others = dict.fromkeys(("sparse_linear.pt", "training_args.bin", "1_Pooling/pytorch_model.bin"), b"x")
    client.hub.repositories[NAME] = Repository({**old_files, **others})
    assert client.run("pull", NAME).exit_code == 0
    assert client.fetched == set(old_files)
    pinned = f"{NAME}@{client.hub.repositories[NAME].commit}"
    client.hub.asked.clear()
    assert client.run("describe", pinned).exit_code == 0
    assert client.hub.asked == []
    done = client.run("describe", NAME, offline=True)
    assert done.exit_code == 0, done.stderr


def test_pytorch_weights_are_not_fetched_beside_an_exported_graph(
    client: Client, old_files: dict[str, bytes]
) -> None:
    client.hub.repositories[NAME] = Repository({**old_files, "onnx/model.onnx": b"graph"})
    expected = {*old_files, "onnx/model.onnx"} - {"pytorch_model.bin"}
    assert client.run("pull", NAME, "--onnx").exit_code == 0
    assert client.fetched == expected
    for offline in (False, True):
        done = client.run("describe", NAME, offline=offline)
        assert done.exit_code == 2
        assert "onnx/model.onnx is not a complete ONNX graph" in done.stderr
        assert client.fetched == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["pytorch_model.bin", "model.safetensors"], []),
        (["pytorch_model.bin", "model.safetensors.index.json"], []),
        (["pytorch_model.bin", "model.onnx", "colbert_linear.pt"], ["pytorch_model.bin"]),
        (["pytorch_model.bin", "pytorch_model-00001-of-00002.bin"], ["pytorch_model.bin"]),
        (
            ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"],
            ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"],
        ),
        (["model.safetensors", "2_Dense/pytorch_model.bin"], ["2_Dense/pytorch_model.bin"]),
        (["model.safetensors", "2_Dense/pytorch_model.bin", "2_Dense/model.safetensors"], []),
        (["0_Transformer/pytorch_model.bin"], ["0_Transformer/pytorch_model.bin"]),
        (["adapter_model.bin", "model.safetensors"], ["adapter_model.bin"]),
        (["adapter_model.bin", "adapter_model.safetensors", "lora/adapter_model.bin"], []),
        (["checkpoint-500/pytorch_model.bin", "1_Pooling/pytorch_model.bin", "a/b/pytorch_model.bin"], []),
        (["pytorch_model.bin.index.json", "optimizer.bin", "flax_model.msgpack", "model.bin"], []),
    ],
)
def test_pytorch_weights_of_folders_without_safetensors(names: list[str], expected: list[str]) -> None:
    assert find_pytorch_weights(names) == expected


def test_the_next_attempt_fetches_what_is_missing(client: Client, files: dict[str, bytes]) -> None:
    client.hub.broken.add("model.safetensors")
    assert client.run("pull", NAME).exit_code == 2
    client.hub.broken.clear()
    client.hub.served.clear()
    done = client.run("pull", NAME)
    assert done.exit_code == 0, done.stderr
    assert client.hub.served == [("model.safetensors", None)]
    assert client.fetched == set(files)


def test_a_half_fetched_model_is_not_served(client: Client) -> None:
    client.hub.broken.add("model.safetensors")
    failed = client.run("pull", NAME)
    assert failed.exit_code == 2
    assert "could not be downloaded" in failed.stderr
    done = client.run("describe", NAME, url=NOWHERE)
    assert done.exit_code == 2
    assert "is not in the cache in full, and the hub cannot be asked for it: 127.0.0.1 refuses" in done.stderr


@pytest.mark.parametrize(("token", "code"), [("", 2), (TOKEN, 0)])
def test_private_models_need_a_token(client: Client, token: str, code: int) -> None:
    client.hub.repositories[NAME].private = True
    done = client.run("pull", NAME, token=token)
    assert done.exit_code == code
    assert ("HF_TOKEN" in done.stderr) == bool(code)
    assert TOKEN not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("owner/other", "The hub has no model owner/other"),
        (f"{NAME}@v2", "owner/tiny-model has no revision 'v2'"),
        ("owner/x--y", "is not a model name"),
        ("owner/../x", "There is no directory"),
        ("../owner/name", "There is no directory"),
    ],
)
def test_what_is_not_there_is_one_sentence(client: Client, model: str, message: str) -> None:
    done = client.run("pull", model)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_terms_that_were_not_accepted_are_named(client: Client) -> None:
    client.hub.repositories[NAME].gated = True
    done = client.run("pull", NAME)
    assert done.exit_code == 2
    assert "accepted its terms" in done.stderr


@pytest.mark.promise("no-foreign-code")
def test_a_model_that_needs_its_own_code_is_refused(client: Client, files: dict[str, bytes]) -> None:
    config = {**json.loads(files["config.json"]), "auto_map": {"AutoModel": "modeling_own.Model"}}
    changed = {**files, "config.json": json.dumps(config).encode()}
    client.hub.repositories[NAME] = Repository(changed)
    done = client.run("pull", NAME)
    assert done.exit_code == 2
    assert "modeling_own.Model" in done.stderr
    assert "not run by default" in done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("owner/name", HubName("owner/name")),
        ("owner/name@v1.0", HubName("owner/name", "v1.0")),
        ("owner/na.me-1_x@refs/pr/1", HubName("owner/na.me-1_x", "refs/pr/1")),
        ("name", None),
        ("owner/name/more", None),
        ("owner/..", None),
        ("./name", None),
        ("owner/name@a/../b", None),
    ],
)
def test_names(text: str, expected: HubName | None) -> None:
    assert HubName.parse(text) == expected
