"""What it costs to hand K/V to MLX: one measurement for `kvbacking handoff` and `benchmarks/handoff.py`."""
