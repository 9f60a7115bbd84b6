"""Tests of `jobs.operate.backup`."""
