"""Tests of state_store/spark that need no JVM."""
