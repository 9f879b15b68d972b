"""What a call consumed, in tokens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Usage:
    """Tokens of one call, or an upper bound of them before it is made."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens)

    @property
    def tokens(self) -> int:
        """Both together."""
        return self.input_tokens + self.output_tokens


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has: one for four bytes, as in English; only a call tells exactly."""
    return max(1, -(-len(text.encode("utf-8", "replace")) // 4))
