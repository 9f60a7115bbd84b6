"""Tests of the upkeep of a lake."""
