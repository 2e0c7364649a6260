"""Benchmarks: each prints ratios against peers run side by side in the same call. Never part of the tests."""
