"""Data sets that studies run on."""
