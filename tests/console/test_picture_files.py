"""Pictures of the console: which files are some, how requests are cut, and how large thumbnails are."""

import pytest

from console.page_modules import call
from support.drawn_pictures import files_of_all_kinds

MB = 1_000_000


def test_the_page_takes_the_formats_that_the_server_reads() -> None:
    for name, data in files_of_all_kinds().items():
        assert call("picture_files.js", "isPicture", [*data[:12]]), name
    for head in (b"", b"GIF", b"BM", b"II*\0", b"RIFF\0\0\0\0WAVE", b"<svg", b"\x89PNG\r\n"):
        assert not call("picture_files.js", "isPicture", [*head]), head


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1], [[0, 1]]),
        ([1] * 16, [[0, 16]]),
        ([1] * 35, [[0, 16], [16, 32], [32, 35]]),
        ([5 * MB, 3 * MB, 1], [[0, 2], [2, 3]]),
        ([50 * MB, 50 * MB], [[0, 1], [1, 2]]),  # a large one goes alone, and the server decides
        ([1, 50 * MB, 1, 1], [[0, 1], [1, 2], [2, 4]]),
    ],
)
def test_requests_are_bounded_in_pictures_and_bytes(sizes: list[int], expected: list[list[int]]) -> None:
    assert call("picture_files.js", "cutRequests", sizes) == expected


def test_thumbnails_are_as_large_as_the_map_has_room() -> None:
    radii = [call("point_layout.js", "radiusOf", count, True) for count in (3, 30, 200, 500)]
    assert radii == sorted(radii, reverse=True)
    assert radii[0] == 24
    assert all(
        count * (2 * radius) ** 2 <= 0.3 * 560 * 360
        for count, radius in zip((30, 200, 500), radii[1:], strict=True)
    )


def test_thumbnails_stand_apart() -> None:
    points = [[number % 5 / 10, number // 5 / 10] for number in range(40)]
    places = call("point_layout.js", "placePoints", points, True)
    side = 2 * call("point_layout.js", "radiusOf", 40, True)
    covered = [
        (one, other)
        for one in range(40)
        for other in range(one)
        if all(abs(a - b) < 0.9 * side for a, b in zip(places[one], places[other], strict=True))
    ]
    assert len(covered) <= 4  # a few corners, where points are dense
