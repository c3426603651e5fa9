"""Pictures of shapes in colours, drawn by tests: what a person would look for with words."""

from collections.abc import Mapping
from functools import cache

from PIL import Image, ImageDraw

from support.drawn_pictures import write_picture

COLOURS = {"red": "#d62828", "green": "#2a9d3a", "blue": "#2456c9", "yellow": "#f2c14e"}
SHAPES = ("circle", "square", "triangle")
SIDE = 64


@cache
def draw_shapes(count: int = len(COLOURS) * len(SHAPES)) -> Mapping[str, bytes]:
    """Return `count` PNG files by their names, such as "red-circle"; later ones are the same, smaller."""
    found = {}
    for number in range(count):
        turn, place = divmod(number, len(COLOURS) * len(SHAPES))
        colour, shape = list(COLOURS)[place // len(SHAPES)], SHAPES[place % len(SHAPES)]
        name = f"{colour}-{shape}" + (f"-{turn}" if turn else "")
        found[name] = write_picture(draw_shape(COLOURS[colour], shape, 6 + turn), "PNG")
    return found


def draw_shape(colour: str, shape: str, edge: int) -> Image.Image:
    """Return a shape on white, `edge` pixels from the edges."""
    image = Image.new("RGB", (SIDE, SIDE), "white")
    draw, end = ImageDraw.Draw(image), SIDE - edge - 1
    if shape == "circle":
        draw.ellipse((edge, edge, end, end), colour)
    elif shape == "square":
        draw.rectangle((edge, edge, end, end), colour)
    else:
        draw.polygon([(SIDE // 2, edge), (edge, end), (end, end)], colour)
    return image
