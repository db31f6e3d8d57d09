"""Parts of the load generator `benchmarks/load.py`."""
