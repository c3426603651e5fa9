"""Several server processes behind one port: `--processes`."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from chaos.rolling_restarts import Load, Server, Tally, servers
from support.forked_process import ForkedProcess, run_process
from support.http_server import wait_until
from support.server import free_port, live_server
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.errors import InvalidConfig
from vecmill.hardware.cores import available_cores
from vecmill_server.base.settings import DEFAULT_LAME_DUCK_S, ServerSettings
from vecmill_server.process.supervisor import TICK_S, divide_limits, start_processes
from vecmill_server.telemetry.siblings import merge_pages

COMMAND = (sys.executable, "-m", "vecmill", "serve", "--engine", "fake", "--no-access-log")
START_S = 60.0
MODEL_IS_READY = r"vecmill_model_ready{process=.* 1\.0\n"

needs_cores = pytest.mark.skipif(available_cores() < 2, reason="two processes need two cores")


@contextmanager
def two_processes(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server of two processes that have loaded their models, and its port."""
    port = free_port()
    running = ForkedProcess[str](
        [*COMMAND, "--port", str(port), "--processes", "2", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert running.stdout is not None
        assert str(port) in running.stdout.readline()
        wait_until(lambda: len(serving(port)) == 2, patience_s=START_S)
        yield running, port
    finally:
        running.kill()
        running.communicate()


def page(port: int) -> str:
    return httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text


def serving(port: int) -> dict[str, float]:
    """The start of each process that has a page, by its number."""
    found = re.findall(r'process_start_time_seconds\{process="(\d)"\} (\S+)', page(port))
    return {number: float(start) for number, start in found}


def wait_until_ended(pids: Sequence[int]) -> None:
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), patience_s=START_S)


def name_of(pid: int) -> str:
    """The name that ps and top show."""
    return Path(f"/proc/{pid}/comm").read_text("utf-8").strip()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]


def wait_for_others(port: int, before: dict[str, float]) -> None:
    """Return when two processes serve that are not the two of `before`."""
    wait_until(lambda: len(found := serving(port)) == 2 and found != before, patience_s=START_S)


def probe_for(port: int, seconds: float) -> None:
    """Send readiness probes for this time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=10).status_code == 200


async def finish(load: Load) -> Tally:
    """Stop the load, and let its connections close."""
    tally = await load.stop()
    for _ in range(3):
        await asyncio.sleep(0)
    return tally


async def stop_under_load(running: subprocess.Popen[str], port: int, number: int) -> Tally:
    """Send a signal while clients send requests; return the tally when the server has ended."""
    load = Load(("127.0.0.1", port))
    await load.has_answers(200)
    running.send_signal(number)
    await asyncio.to_thread(running.wait, START_S)
    return await finish(load)


def admitted_by_process(port: int) -> dict[str, float]:
    """The texts that each process has admitted, from the merged metrics."""
    families = {family.name: family for family in text_string_to_metric_families(page(port))}
    return {
        sample.labels["process"]: sample.value
        for sample in families["vecmill_texts_admitted"].samples
        if sample.name.endswith("_total")
    }


def are_counted(port: int, answers: int) -> bool:
    """Whether the processes together have admitted so many texts."""
    return sum(admitted_by_process(port).values()) == answers


@pytest.mark.linux
@needs_cores
@pytest.mark.promise("clean-stop")
async def test_both_processes_answer_are_counted_and_stop_without_losing_a_request() -> None:
    with two_processes() as (running, port):
        answers, admitted = 0, dict[str, float]()
        for _ in range(20):  # the kernel may give all connections to the process that is free
            load = Load(("127.0.0.1", port))
            await load.has_answers(100)
            answers += (await finish(load)).answers
            # The first page may be from before the last answers.
            wait_until(partial(are_counted, port, answers))
            admitted = admitted_by_process(port)
            assert set(admitted) == {"0", "1"}
            if all(admitted.values()):
                break
        assert all(admitted.values()), admitted
        tally = await stop_under_load(running, port, signal.SIGINT)
        assert (tally.lost, running.returncode) == ([], 0)


@needs_cores
@pytest.mark.full
@pytest.mark.promise("clean-stop")
async def test_all_processes_keep_the_lame_duck_time_of_the_one_that_was_probed() -> None:
    with two_processes() as (running, port):
        await asyncio.to_thread(probe_for, port, 1.5 * TICK_S)
        began = time.monotonic()
        tally = await stop_under_load(running, port, signal.SIGTERM)
        assert (tally.lost, running.returncode) == ([], 0)
        assert time.monotonic() - began >= DEFAULT_LAME_DUCK_S


@needs_cores
@pytest.mark.full
@pytest.mark.promise("clean-stop")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_stop_under_load_loses_nothing(number: int) -> None:
    with two_processes() as (running, port):
        tally = await stop_under_load(running, port, number)
        assert (tally.lost, running.returncode) == ([], 0)


@needs_cores
@pytest.mark.full
async def test_a_process_that_ends_is_replaced_and_the_others_answer_meanwhile() -> None:
    with two_processes() as (running, port):
        before = serving(port)
        load = Load(("127.0.0.1", port))
        await load.has_answers(200)
        os.kill(children(running.pid)[1], signal.SIGTERM)
        await asyncio.to_thread(wait_for_others, port, before)
        await load.has_answers(200)
        assert (await finish(load)).lost == []
        os.kill(children(running.pid)[0], signal.SIGKILL)
        after = serving(port)
        await asyncio.to_thread(wait_for_others, port, after)
        running.terminate()
        _, log = running.communicate(timeout=START_S)
        assert running.returncode == 0
        assert "server process 1" in log
        assert "ended with status 0; another process takes its place in 1 s" in log
        assert "ended by signal 9" in log


@needs_cores
@pytest.mark.full
def test_a_replacement_that_is_killed_alone_ends_the_server_with_a_line_in_the_log() -> None:
    with two_processes() as (running, _):
        running.send_signal(signal.SIGUSR1)
        while running.poll() is None:  # whatever starts is killed before it is ready
            for pid in children(running.pid) if Path(f"/proc/{running.pid}").exists() else ():
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        _, log = running.communicate(timeout=START_S)
        assert running.returncode == 1
        assert "SIGUSR1 is ignored" in log
        assert "ended by signal 9 before it was ready, and no other process is ready; the server ends" in log


@needs_cores
@pytest.mark.full
async def test_the_processes_stop_when_the_supervisor_is_killed() -> None:
    with two_processes() as (running, port):
        pids = children(running.pid)
        assert [name_of(pid) for pid in (running.pid, *pids)] == ["vecmill-main", "vecmill-0", "vecmill-1"]
        load = Load(("127.0.0.1", port))
        await load.has_answers(100)
        running.kill()
        await asyncio.to_thread(wait_until_ended, pids)
        assert (await finish(load)).lost == []


@needs_cores
@pytest.mark.full
def test_new_clients_are_refused_while_the_last_requests_are_read() -> None:
    with two_processes("--drain-s", "30") as (running, port):
        with socket.create_connection(("127.0.0.1", port)) as begun:
            begun.sendall(b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{")
            running.terminate()
            wait_until(lambda: is_refused(port), patience_s=START_S)
            assert running.poll() is None
        running.kill()


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.5).close()
    except ConnectionRefusedError:
        return True
    except TimeoutError:  # its first packet was dropped
        return False
    return False


@needs_cores
@pytest.mark.full
def test_a_second_signal_ends_all_processes_at_once() -> None:
    with two_processes("--lame-duck-s", "60") as (running, port):
        running.terminate()
        wait_until(lambda: httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 503)
        running.terminate()
        assert running.wait(10) == 1


@needs_cores
@pytest.mark.full
@pytest.mark.promise("clean-stop")
async def test_processes_take_over_an_inherited_socket_from_others() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener, servers() as running:
        load = Load(listener.getsockname())
        for number in range(3):
            running.append(Server(listener, ("--processes", "2")))
            await asyncio.to_thread(running[-1].wait_until_ready)
            await load.has_answers(200)
            if number:
                assert await asyncio.to_thread(running[-2].stop) == 0
            await load.has_answers(200)
        tally = await finish(load)
        assert await asyncio.to_thread(running[-1].stop) == 0
    assert (tally.lost, tally.refused) == ([], 0)


def refusal(arguments: Sequence[str]) -> str:
    done = run_process([*COMMAND, "--port", str(free_port()), *arguments])
    assert done.returncode == 2
    return done.stderr


@needs_cores
@pytest.mark.full
def test_a_model_that_cannot_be_loaded_ends_the_server(tmp_path: Path) -> None:
    assert "tmp" in refusal(["--processes", "2", str(tmp_path / "missing")])


def test_files_and_batches_need_one_process(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="processes and batch_dir exclude each other"):
        ServerSettings(processes=2, batch_dir=tmp_path)


@pytest.mark.linux
def test_each_process_needs_a_core() -> None:
    with pytest.raises(InvalidConfig, match="3 processes need at least as many cores, and this server has 2"):
        start_processes(ServerSettings(processes=3), 2, print)


def test_processes_divide_cores_connections_and_bytes() -> None:
    settings = ServerSettings(processes=3, max_connections=100, max_buffered_bytes=6_000_000)
    shares = [divide_limits(settings, 8, number) for number in range(3)]
    assert [share["cores"] for share in shares] == [3, 3, 2]
    assert {share["max_connections"] for share in shares} == {34}
    assert {share["max_buffered_bytes"] for share in shares} == {2_000_000}
    small = divide_limits(replace(settings, max_buffered_bytes=1024 * 1024), 8, 0)
    assert small["result_cache_memory_bytes"] == 0
    keeping = divide_limits(replace(settings, result_cache_dir=Path("results")), 8, 0)
    assert keeping["result_cache_memory_bytes"] == 64 * 1024 * 1024 // 3
    assert small["max_buffered_bytes"] == 1024 * 1024


def test_pages_are_merged_by_family_with_the_number_of_the_process() -> None:
    header = "# HELP a_total Texts.\n# TYPE a_total counter\n"
    other = "# HELP b Bytes.\n# TYPE b gauge\n"
    pages = {
        0: f'{header}a_total{{model="m}} 1"}} 2.0\n{other}b 5.0\n'.encode(),
        2: f'{header}a_total{{model="x"}} 3.0\n{other}b 7.0\n'.encode(),
    }
    assert merge_pages(pages).decode() == (
        f'{header}a_total{{process="0",model="m}} 1"}} 2.0\na_total{{process="2",model="x"}} 3.0\n'
        f'{other}b{{process="0"}} 5.0\nb{{process="2"}} 7.0\n'
    )


@pytest.mark.full
def test_a_second_process_with_the_same_batch_folder_does_not_start(tmp_path: Path) -> None:
    with live_server(
        tmp_path, arguments=["--engine", "fake", "--batch-dir", str(tmp_path / "batches")]
    ) as first:
        told = refusal(["--batch-dir", str(tmp_path / "batches")])
        assert f"Another process uses {tmp_path / 'batches'} for its batches." in told
        assert httpx.get(f"{first.url}/v1/files").status_code == 200


@pytest.mark.full
def test_a_server_without_a_batch_folder_says_so(tmp_path: Path) -> None:
    with live_server(tmp_path, arguments=["--engine", "fake"]) as server:
        answer = httpx.get(f"{server.url}/v1/files")
        assert answer.status_code == 404
        assert "Start it with --batch-dir FOLDER" in answer.json()["error"]["message"]


def weights_mib(pid: int) -> tuple[float, float]:
    """The MiB of the weights that a process maps: all of them, and those that it shares with nobody."""
    resident_kib = private_kib = 0
    is_weights = False
    for line in Path(f"/proc/{pid}/smaps").read_text("utf-8").splitlines():
        name, _, rest = line.partition(":")
        if "-" in name.split(" ")[0]:  # a new mapping: its addresses, and its file
            is_weights = line.endswith(".weights") or "/memfd:" in line
        elif is_weights and name == "Rss":
            resident_kib += int(rest.split()[0])
        elif is_weights and name.startswith("Private_"):
            private_kib += int(rest.split()[0])
    return resident_kib / 1024, private_kib / 1024


@pytest.mark.linux
@needs_cores
def test_the_processes_share_the_weights_of_a_model(tmp_path: Path) -> None:
    config = {"hidden_size": 256, "num_hidden_layers": 6, "intermediate_size": 1024}  # 19 MiB
    model = save_tiny_bert(tmp_path / "model", TinyBert(config=config))
    arguments = [str(model), "--processes", "2"]
    with live_server(tmp_path, arguments=arguments) as server:
        port = int(server.url.rpartition(":")[2])
        wait_until(lambda: len(re.findall(MODEL_IS_READY, page(port))) == 2, patience_s=START_S)
        for pid in children(server.process.pid):
            resident, private = weights_mib(pid)
            assert resident > 15
            assert private < 1
