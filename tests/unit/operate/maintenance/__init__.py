"""Tests of `jobs.operate.maintenance`."""
