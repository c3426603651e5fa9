"""Texts of a request that begin with the same tokens: larger calls, in which the prefix counts once."""

from vecmill.batching.forecast import Forecast
from vecmill.batching.pace import Pace
from vecmill.batching.policy import Policy
from vecmill.batching.prefixes import MAX_SLOTS, SHARED_PARTS, computed_lengths, predict_tokens
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
        self.queue.admit(mark(sequences), Terms(priority, 1e9), 0.0)

    def take(self, lanes: int = 1) -> list[Job]:
        jobs = self.policy.choose(self.queue, lanes=lanes, now=0.0)
        self.queue.take(jobs, 0.0)
        return jobs


def pairs(
    documents: int, *, query: int = QUERY, document: int = DOCUMENT, tag: int = 0
) -> list[TokenSequence]:
    """One query before each of so many documents."""
    prefix = [10_000 + tag] * query
    return [TokenSequence.of(prefix + [number + 1] * document) for number in range(documents)]


def mark(sequences: list[TokenSequence]) -> list[TokenSequence]:
    return mark_shared(sequences, longest=LIMIT)


def predict(sequences: list[TokenSequence]) -> int:
    return sum(predict_tokens([len(each) for each in sequences], [each.shared for each in sequences]))


def test_all_texts_of_a_request_are_marked_with_their_common_prefix() -> None:
    assert [sequence.shared for sequence in mark(pairs(3))] == [QUERY] * 3
    assert [sequence.shared for sequence in mark(pairs(1))] == [0]
    assert [sequence.shared for sequence in mark(pairs(3, query=LEAST_SHARED - 1))] == [0] * 3
    whole = TokenSequence.of([10_000] * QUERY)
    assert [sequence.shared for sequence in mark([*pairs(2), whole])] == [QUERY - 1] * 3


def test_a_text_that_is_computed_alone_shares_nothing() -> None:
    longest, *others = pairs(3)
    long = TokenSequence.of([*longest.token_ids.tolist(), *range(LIMIT)])
    assert [sequence.shared for sequence in mark([long, *others])] == [0, QUERY, QUERY]
    assert predict(mark([long, *others])) == len(long) + QUERY + 2 * DOCUMENT
    # Without the second document there is nobody to share with.
    assert [sequence.shared for sequence in mark([long, others[0]])] == [0, 0]


def test_a_prefix_is_a_small_part_of_a_call() -> None:
    stage = Stage()
    stage.admit(pairs(100))
    jobs = stage.take()
    computed = computed_lengths(jobs)
    assert computed == [QUERY + DOCUMENT, *[DOCUMENT] * (len(jobs) - 1)]
    assert 0.9 * SHARED_PARTS * QUERY <= sum(computed) <= SHARED_PARTS * QUERY + DOCUMENT


def test_texts_are_divided_into_calls_of_one_size() -> None:
    stage = Stage()
    stage.admit(pairs(100))
    sizes = []
    while stage.queue.work_texts:
        sizes.append(len(stage.take(lanes=2)))
    *full, last = sizes
    assert full == [13] * 7
    assert last == 100 - sum(full)


def test_a_few_short_texts_with_a_long_prefix_stay_in_one_call() -> None:
    stage = Stage()
    stage.admit(pairs(4, query=400, document=20))
    assert len(stage.take(lanes=2)) == 4


def test_a_thousand_short_texts_with_a_long_prefix_do_not_fill_the_memory() -> None:
    stage = Stage()
    stage.admit(pairs(1_000, query=500, document=2))
    while stage.queue.work_texts:
        jobs = stage.take()
        assert len(jobs) * jobs[0].tokens <= MAX_SLOTS * SHARED_PARTS * 500


def test_texts_with_a_common_prefix_are_divided_among_the_lanes() -> None:
    stage = Stage()
    stage.admit(pairs(6))
    assert [len(stage.take(lanes=2)), len(stage.take(lanes=1))] == [3, 3]


def test_the_prefix_of_another_request_is_not_shared() -> None:
    stage = Stage()
    stage.admit(pairs(2))
    stage.admit(pairs(4, tag=1))
    assert computed_lengths(stage.take()) == [QUERY + DOCUMENT, DOCUMENT]


def test_a_text_that_came_with_another_request_has_another_prefix() -> None:
    stage = Stage()
    texts = pairs(3)
    first = stage.queue.admit(mark(texts), Terms(Priority.BULK, 1e9), 0.0)
    other = pairs(3, query=20, tag=1)
    stage.admit([*other, texts[0]])
    stage.queue.cancel(first, 0.0)
    computed = []
    while stage.queue.work_texts:
        computed += [len(job.sequence) for job in stage.take(lanes=2)]
    assert sorted(computed) == [20 + DOCUMENT] * 3 + [QUERY + DOCUMENT]


def test_calls_stay_short_beside_interactive_requests() -> None:
    stage = Stage()
    stage.admit([TokenSequence.of([5] * 4)], Priority.INTERACTIVE)
    stage.admit(pairs(100))
    first, second = stage.take(), stage.take()
    assert [len(first[0].sequence), len(second)] == [4, 1]


def test_the_predicted_time_is_that_of_the_calls() -> None:
    for count, document in ((2, DOCUMENT), (5, DOCUMENT), (8, DOCUMENT), (100, DOCUMENT), (300, 5)):
        stage = Stage()
        sequences = mark(pairs(count, document=document))
        predicted = predict(sequences)
        stage.admit(sequences)
        computed = 0
        while stage.queue.work_texts:
            computed += sum(computed_lengths(stage.take()))
        assert 0.9 * computed <= predicted <= 1.3 * computed, count


def test_without_a_common_prefix_nothing_changes() -> None:
    sequences = [TokenSequence.of([number + 1] * DOCUMENT) for number in range(9)]
    assert predict_tokens([DOCUMENT] * 9, [0] * 9) == [DOCUMENT] * 9
    stage = Stage()
    stage.admit(sequences)
    assert len(stage.take()) == LIMIT // DOCUMENT
