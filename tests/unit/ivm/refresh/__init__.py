"""Tests of refreshes, without a JVM."""
