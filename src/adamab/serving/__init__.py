"""For other people: a server with a page, a report, exports, predictions of many rows."""

CHUNK = 512  # rows that a prediction embeds together, wherever its answers go
