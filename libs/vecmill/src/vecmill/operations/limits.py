"""The limits on the inputs of one request, which hold before any work on them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from vecmill.config import InputConfig, OnLongInput
from vecmill.errors import InputLimitExceeded, InvalidRequest, RequestTooLarge
from vecmill.requests import Request, Truncation

Req = TypeVar("Req", bound=Request[Any])


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one loaded model. All methods raise `InvalidRequest` or `RequestTooLarge`."""

    inputs: InputConfig

    @property
    def most_tokens(self) -> int:
        """The number of tokens that all texts of one request may have."""
        return self.inputs.max_request_tokens

    def check_sizes(self, sizes: Sequence[int], uncounted: int = 0) -> None:
        """Refuse inputs of more characters than the limits allow, and more inputs, `uncounted` ones apart."""
        limits = self.inputs
        count = len(sizes) - uncounted
        if not 1 <= count <= limits.max_inputs:
            self.check_count(count)
        if max(sizes) > limits.max_text_characters:
            index = sizes.index(max(sizes))
            raise InputLimitExceeded(
                f"`input[{index}]` has {sizes[index]} characters, prompt included; at most "
                f"{limits.max_text_characters} are accepted.",
                field="input",
            )
        if sum(sizes) > limits.max_request_characters:
            raise RequestTooLarge(
                f"`input` has {sum(sizes)} characters in all; at most {limits.max_request_characters} are "
                "accepted. Send it in parts.",
                field="input",
            )

    def check_count(self, count: int) -> None:
        """Refuse no inputs, and more than one request may have."""
        if count < 1:
            raise InvalidRequest("`input` is empty; give at least one text.", field="input")
        if count > self.inputs.max_inputs:
            raise InputLimitExceeded(
                f"`input` has {count} items; at most {self.inputs.max_inputs} are accepted. "
                "Send it in parts.",
                field="input",
            )

    def check_pictures(self, pictures: int) -> None:
        """Refuse more pictures than one request may have."""
        if pictures > self.inputs.max_pictures:
            raise InputLimitExceeded(
                f"`input` has {pictures} pictures; at most {self.inputs.max_pictures} are accepted. "
                "Send it in parts.",
                field="input",
            )

    def check_chunks(self, chunks: int) -> None:
        """Refuse more chunks than one request may have inputs."""
        most = self.inputs.max_inputs
        if chunks > most:
            raise RequestTooLarge(
                f"`input` has {chunks} chunks in all; at most {most} are accepted. Send it in parts, or ask "
                "for larger chunks.",
                field="input",
            )

    def check_tokens(self, tokens: int) -> None:
        """Refuse more tokens than one request may have."""
        most = self.inputs.max_request_tokens
        if tokens > most:
            raise RequestTooLarge(
                f"`input` has {tokens} tokens in all; at most {most} are accepted. Send it in parts.",
                field="input",
            )

    def decide_truncation(self, truncation: Truncation) -> Truncation:
        """Return the truncation, with the decision whether texts that are too long are refused."""
        if truncation.is_allowed is not None:
            return truncation
        return replace(truncation, is_allowed=self.inputs.on_long_input is OnLongInput.CUT)

    def decide(self, request: Req) -> Req:
        """Return the request, with the decision of `decide_truncation`."""
        options = request.options
        if options.truncation.is_allowed is not None:
            return request
        return replace(
            request, options=replace(options, truncation=self.decide_truncation(options.truncation))
        )
