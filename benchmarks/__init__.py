"""Measured figures and their bars: `make bench`, or `python -m benchmarks GROUP` for one group."""
