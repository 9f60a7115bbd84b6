"""Tests of tables in the kernel."""
