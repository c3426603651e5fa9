"""Clients take turns by the time that they have had, and long turns leave a place to others."""

from vecmill.pictures.client_turns import ClientTurns, Turn


def take(turns: ClientTurns[str]) -> Turn[str]:
    turn = turns.take()
    assert turn is not None
    return turn


def serve(turns: ClientTurns[str], seconds: float) -> str:
    """Take a turn of so many seconds, and return its work."""
    turn = take(turns)
    turns.end(turn, seconds)
    return turn.work


def test_a_client_with_long_turns_never_has_the_last_place() -> None:
    turns: ClientTurns[str] = ClientTurns(places=2, expected_s=0.02)
    for name in ("flood", "crowd"):
        for index in range(4):
            turns.add(name, f"{name} {index}")
    unknown = [take(turns), take(turns)]  # nobody knows yet that they are long
    assert {turn.work for turn in unknown} == {"flood 0", "crowd 0"}
    for turn in unknown:
        turns.end(turn, 3.0)
    long = take(turns)
    assert turns.take() is None  # all others would be long too
    turns.add("new", "short")
    short = take(turns)
    assert short.work == "short"
    turns.end(short, 0.02)
    assert turns.take() is None
    turns.end(long, 3.0)
    assert turns.take() is not None


def test_a_new_client_has_one_place_until_its_first_turn_ends() -> None:
    turns: ClientTurns[str] = ClientTurns(places=3, expected_s=0.02)
    for index in range(4):
        turns.add("one", str(index))
    first = take(turns)
    assert turns.take() is None
    turns.end(first, 0.02)
    assert [take(turns).work for _ in range(3)] == ["1", "2", "3"]


def test_long_turns_have_the_only_place_if_there_is_one() -> None:
    turns: ClientTurns[str] = ClientTurns(places=1, expected_s=0.02)
    for index in range(3):
        turns.add("flood", str(index))
    assert [serve(turns, 3.0) for _ in range(3)] == ["0", "1", "2"]


def test_a_client_whose_turns_get_short_again_has_all_places() -> None:
    turns: ClientTurns[str] = ClientTurns(places=2, expected_s=0.02)
    for index in range(20):
        turns.add("one", str(index))
    serve(turns, 3.0)
    for _ in range(4):
        serve(turns, 0.02)
    assert [take(turns).work, take(turns).work] == ["5", "6"]


def test_equal_clients_get_equal_times_whatever_their_turns_take() -> None:
    turns: ClientTurns[str] = ClientTurns(places=1, expected_s=0.02)
    for index in range(400):
        turns.add("short", f"short {index}")
        turns.add("long", f"long {index}")
    had = {"short": 0.0, "long": 0.0}
    for _ in range(300):
        turn = take(turns)
        name = turn.work.split()[0]
        took_s = 0.4 if name == "long" else 0.1
        turns.end(turn, took_s)
        had[name] += took_s
    assert abs(had["short"] - had["long"]) < 1.0


def test_nobody_saves_time_up() -> None:
    turns: ClientTurns[str] = ClientTurns(places=1, expected_s=0.1)
    for index in range(100):
        turns.add("busy", f"busy {index}")
    turns.add("early", "early")
    assert {serve(turns, 0.1), serve(turns, 0.1)} == {"busy 0", "early"}
    for _ in range(50):
        serve(turns, 0.1)
    for index in range(10):
        turns.add("early", f"early {index}")
    begun = [serve(turns, 0.1) for _ in range(10)]
    assert 4 <= sum(work.startswith("early") for work in begun) <= 6


def test_clients_without_work_are_forgotten_when_there_are_many() -> None:
    turns: ClientTurns[str] = ClientTurns(places=1, expected_s=0.1)
    for index in range(3000):
        turns.add(str(index), "work")
        serve(turns, 0.1)
    assert len(turns._clients) <= 1025
    turns.add("cancelled", "work")
    turns.remove("cancelled", "work")
    turns.remove("nobody", "work")
    assert turns.works == []
    assert turns.take() is None
