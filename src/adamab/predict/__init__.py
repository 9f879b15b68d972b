"""Predictions of any number of rows: numbered parts, each made once, and a file or a folder of them."""

CHUNK = 512  # rows that are embedded together, wherever their answers go
