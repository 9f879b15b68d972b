"""What a call consumed, in tokens and pictures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Usage:
    """Tokens of one call and pictures that it made, or an upper bound of them before it is made."""

    input_tokens: int = 0
    output_tokens: int = 0
    images: int = 0  # made, for services that bill by the picture

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.images + other.images,
        )

    def times(self, number: int) -> Usage:
        """Of so many equal calls."""
        return Usage(number * self.input_tokens, number * self.output_tokens, number * self.images)

    def or_more(self, other: Usage) -> Usage:
        """The larger of each."""
        return Usage(
            max(self.input_tokens, other.input_tokens),
            max(self.output_tokens, other.output_tokens),
            max(self.images, other.images),
        )

    @property
    def tokens(self) -> int:
        """Both kinds together."""
        return self.input_tokens + self.output_tokens


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has: one for four bytes, as in English; only a call tells exactly."""
    return max(1, -(-len(text.encode("utf-8", "replace")) // 4))
