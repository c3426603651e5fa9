"""Rounds: blocks whose actors died are embedded again, until all are there or nothing helps."""

from collections.abc import Iterator, Sequence
from io import StringIO

import pytest

from vecmill.commands.embed.progress import ProgressBar
from vecmill.errors import InvalidConfig, InvalidCorpus, SetupError
from vecmill_ray.bulk.blocks import BlockCounts, BulkBlock
from vecmill_ray.bulk.bulk_options import ActorPool, choose_pool, describe_wait
from vecmill_ray.bulk.rounds import FRUITLESS_ROUNDS, BlockFailure, complete_blocks, describe_failure

BLOCKS = [BulkBlock(number, 0, number, number + 1, number + 1, 1) for number in range(4)]


class ScriptedCluster:
    """Each round ends as the script says: the numbers of its finished blocks, or a failure."""

    def __init__(self, *script: Sequence[int] | BlockFailure, existing: Sequence[int] = ()) -> None:
        self._script = list(script)
        self._written = set(existing)
        self.rounds: list[list[int]] = []

    def check(self, blocks: Sequence[BulkBlock]) -> list[BlockCounts]:
        return [counts(block.number) for block in blocks if block.number in self._written]

    def embed(self, blocks: Sequence[BulkBlock]) -> Iterator[BlockCounts | BlockFailure]:
        self.rounds.append([block.number for block in blocks])
        found = self._script.pop(0)
        if isinstance(found, BlockFailure):
            yield found
        else:
            yield from map(counts, found)

    def write_in_secret(self, number: int) -> None:
        """An actor writes its file and dies before it can tell."""
        self._written.add(number)


def counts(number: int) -> BlockCounts:
    return BlockCounts(number, 1, 5, 0)


def complete(cluster: ScriptedCluster) -> tuple[list[int], ProgressBar, list[float]]:
    bar, pauses = ProgressBar(len(BLOCKS), file=StringIO()), list[float]()
    done = complete_blocks(cluster, BLOCKS, bar, pause=pauses.append)
    return sorted(done), bar, pauses


def test_all_blocks_in_one_round() -> None:
    cluster = ScriptedCluster([2, 0, 1, 3])
    assert complete(cluster)[0] == [0, 1, 2, 3]
    assert cluster.rounds == [[0, 1, 2, 3]]


def test_blocks_that_an_earlier_run_finished_are_not_embedded_again() -> None:
    cluster = ScriptedCluster([1, 3], existing=[0, 2])
    done, bar, _ = complete(cluster)
    assert done == [0, 1, 2, 3]
    assert cluster.rounds == [[1, 3]]
    assert (bar.texts_existing, bar.texts_embedded) == (2, 2)


def test_blocks_of_dead_actors_are_in_the_next_round() -> None:
    cluster = ScriptedCluster([0, 3], [1], [2])
    assert complete(cluster)[0] == [0, 1, 2, 3]
    assert cluster.rounds == [[0, 1, 2, 3], [1, 2], [2]]


def test_a_file_that_a_dead_actor_wrote_counts() -> None:
    cluster = ScriptedCluster([0, 1, 3])
    cluster.write_in_secret(2)
    assert complete(cluster)[0] == [0, 1, 2, 3]
    assert len(cluster.rounds) == 1


def test_a_block_that_is_told_twice_counts_once() -> None:
    _, bar, _ = complete(ScriptedCluster([0, 0, 1, 2, 2, 3]))
    assert bar.texts_embedded == 4


def test_a_fault_that_passes_is_waited_for() -> None:
    failure = BlockFailure("The storage cannot be reached.", is_final=False)
    done, _, pauses = complete(ScriptedCluster(failure, [0, 1], failure, [2, 3]))
    assert done == [0, 1, 2, 3]
    assert len(pauses) == 2


def test_a_fault_that_does_not_pass_ends_the_run() -> None:
    cluster = ScriptedCluster(*[BlockFailure("No space is left.", is_final=False)] * FRUITLESS_ROUNDS)
    with pytest.raises(SetupError, match=r"4 blocks cannot be embedded, .* No space is left\. The finished"):
        complete(cluster)


def test_the_reason_is_that_of_the_last_round() -> None:
    cluster = ScriptedCluster(BlockFailure("No space is left.", is_final=False), [], [])
    with pytest.raises(SetupError, match=r"row 1 on: their actors died\. The finished"):
        complete(cluster)


def test_the_log_names_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    complete(ScriptedCluster(BlockFailure("No space is left.", is_final=False), [0, 1], [2, 3]))
    assert [record.message for record in caplog.records] == [
        "4 blocks are embedded again: No space is left.",
        "2 blocks are embedded again: their actors died.",
    ]


def test_a_final_error_ends_the_run_at_once() -> None:
    with pytest.raises(SetupError, match="has changed"):
        complete(ScriptedCluster(BlockFailure("The input has changed.", is_final=True)))


def test_only_errors_of_storage_may_pass() -> None:
    assert describe_failure(InvalidCorpus("Line 3 has no text.")).is_final
    lost = InvalidCorpus("s3://a/b cannot be read.")
    lost.__cause__ = OSError("timeout")
    assert not describe_failure(lost).is_final


def test_an_error_of_another_program_is_named_and_may_pass() -> None:
    found = describe_failure(MemoryError("Unable to allocate 9 GiB.\nmore"))
    assert found == BlockFailure("MemoryError: Unable to allocate 9 GiB.", is_final=False)


def test_the_command_says_what_it_waits_for() -> None:
    assert describe_wait(8, 1).startswith("Waiting for a node with 8 free cores and a free GPU. `ray status`")
    assert "--cores" not in describe_wait(1, 0)


NODE = {"CPU": 8.0}
GPU_NODE = {"CPU": 32.0, "GPU": 4.0}


@pytest.mark.parametrize(
    ("nodes", "cores", "actors", "device", "expected"),
    [
        ([NODE, NODE], None, None, None, ActorPool(2, 8, 0)),
        ([NODE, {"CPU": 4.0}], None, None, None, ActorPool(3, 4, 0)),
        ([{}, NODE], None, None, None, ActorPool(1, 8, 0)),
        ([NODE, NODE], 2, None, None, ActorPool(8, 2, 0)),
        ([NODE], 2, 3, None, ActorPool(3, 2, 0)),
        ([GPU_NODE, GPU_NODE], None, None, None, ActorPool(8, 8, 1)),
        ([GPU_NODE], None, None, "cpu", ActorPool(1, 32, 0)),
        ([GPU_NODE, NODE], 4, None, "cuda", ActorPool(4, 4, 1)),
    ],
)
def test_the_pool_fills_the_cluster(
    nodes: list[dict[str, float]],
    cores: int | None,
    actors: int | None,
    device: str | None,
    expected: ActorPool,
) -> None:
    assert choose_pool(nodes, cores, actors, device) == expected


def test_too_many_cores_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="room for an actor with 16 cores: the largest node has 8 cores"):
        choose_pool([NODE], 16, None, None)
    with pytest.raises(InvalidConfig, match="has a CPU"):
        choose_pool([{}], None, None, None)
