"""Measured promises: `python -m benchmarks` compares each with its limit."""
