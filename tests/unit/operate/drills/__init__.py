"""Tests of `jobs.operate.drills`."""
