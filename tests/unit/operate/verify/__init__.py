"""Tests of `jobs.operate.verify`."""
