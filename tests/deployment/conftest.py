"""What the tests of rendered files share."""

from collections.abc import Iterator
from typing import Any

import jinja2
import pytest


@pytest.fixture(scope="package", autouse=True)
def compiled_templates() -> Iterator[None]:
    """Compile each template once, although each file is rendered in an environment of its own."""
    compile_source = jinja2.Environment.compile
    compiled: dict[Any, Any] = {}

    def compile_once(self: jinja2.Environment, source: Any, *arguments: Any, **options: Any) -> Any:
        if arguments or options or not isinstance(source, str):
            return compile_source(self, source, *arguments, **options)
        key = (type(self), self.undefined, self.trim_blocks, self.keep_trailing_newline, source)
        if key not in compiled:
            compiled[key] = compile_source(self, source)
        return compiled[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jinja2.Environment, "compile", compile_once)
        yield
