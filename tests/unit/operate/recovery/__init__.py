"""Tests of `jobs.operate.recovery`."""
