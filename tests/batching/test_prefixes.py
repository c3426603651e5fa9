"""Texts of a request that begin with the same tokens: larger calls, in which the beginning counts once."""

from vecmill.batching.forecast import Forecast
from vecmill.batching.pace import Pace
from vecmill.batching.policy import Policy
from vecmill.batching.prefixes import SHARED_PARTS, computed_lengths, predict_tokens
from vecmill.batching.queue import Queue
from vecmill.batching.ticket import Job, Terms
from vecmill.config import BatchConfig, MillConfig, QueueConfig
from vecmill.requests import Priority
from vecmill.values.batch import LEAST_SHARED, TokenSequence, mark_shared
from vecmill.values.engine_plan import CostModel

LIMIT = 512
QUERY, DOCUMENT = 200, 100
TOKEN_S = 1e-3


class Stage:
    """A queue and a policy. A token takes a millisecond."""

    def __init__(self) -> None:
        config = BatchConfig(max_batch_tokens=LIMIT)
        self.queue = Queue(QueueConfig(), lambda tokens: tokens * TOKEN_S)
        pace = Pace(CostModel(0.0, TOKEN_S), narrow=1)
        self.policy = Policy(config, Forecast(self.queue, MillConfig(batch=config), pace, cores=1), pace)

    def admit(self, sequences: list[TokenSequence], priority: Priority = Priority.BULK) -> None:
        self.queue.admit(mark_shared(sequences), Terms(priority, 1e9), 0.0)

    def take(self, lanes: int = 1) -> list[Job]:
        jobs = self.policy.choose(self.queue, lanes=lanes, now=0.0)
        self.queue.take(jobs, 0.0)
        return jobs


def pairs(documents: int, *, query: int = QUERY, tag: int = 0) -> list[TokenSequence]:
    """One query before each of so many documents."""
    beginning = [10_000 + tag] * query
    return [TokenSequence.of(beginning + [number + 1] * DOCUMENT) for number in range(documents)]


def test_all_texts_of_a_request_are_marked_with_their_common_beginning() -> None:
    assert [sequence.shared for sequence in mark_shared(pairs(3))] == [QUERY] * 3
    assert [sequence.shared for sequence in mark_shared(pairs(1))] == [0]
    assert [sequence.shared for sequence in mark_shared(pairs(3, query=LEAST_SHARED - 1))] == [0] * 3
    whole = TokenSequence.of([10_000] * QUERY)
    assert [sequence.shared for sequence in mark_shared([*pairs(2), whole])] == [QUERY - 1] * 3


def test_a_beginning_is_a_small_part_of_a_call() -> None:
    stage = Stage()
    stage.admit(pairs(100))
    jobs = stage.take()
    computed = computed_lengths(jobs)
    assert computed == [QUERY + DOCUMENT, *[DOCUMENT] * (len(jobs) - 1)]
    assert sum(computed) / SHARED_PARTS >= QUERY
    assert sum(computed) <= SHARED_PARTS * QUERY


def test_texts_with_a_common_beginning_are_divided_among_the_lanes() -> None:
    stage = Stage()
    stage.admit(pairs(6))
    assert [len(stage.take(lanes=2)), len(stage.take(lanes=1))] == [3, 3]


def test_the_beginning_of_another_request_is_not_shared() -> None:
    stage = Stage()
    stage.admit(pairs(2))
    stage.admit(pairs(4, tag=1))
    assert computed_lengths(stage.take()) == [QUERY + DOCUMENT, DOCUMENT]


def test_calls_stay_short_beside_interactive_requests() -> None:
    stage = Stage()
    stage.admit([TokenSequence.of([5] * 4)], Priority.INTERACTIVE)
    stage.admit(pairs(100))
    first, second = stage.take(), stage.take()
    assert [len(first[0].sequence), len(second)] == [4, 1]


def test_the_predicted_time_is_that_of_the_calls() -> None:
    for count in (2, 5, 8, 100):
        stage = Stage()
        sequences = mark_shared(pairs(count))
        predicted = sum(predict_tokens(sequences))
        stage.admit(sequences)
        computed = 0
        while not stage.queue.is_empty:
            computed += sum(computed_lengths(stage.take()))
        assert 0.9 * computed <= predicted <= 1.3 * computed, count


def test_without_a_common_beginning_nothing_changes() -> None:
    sequences = [TokenSequence.of([number + 1] * DOCUMENT) for number in range(9)]
    assert predict_tokens(sequences) == [DOCUMENT] * 9
    stage = Stage()
    stage.admit(sequences)
    assert len(stage.take()) == LIMIT // DOCUMENT
