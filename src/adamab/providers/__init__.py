"""The outside world and what guards it: embedders, generators, the cache."""
