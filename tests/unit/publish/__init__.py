"""Changelog topics: what a reader has of them, whatever happened to their publishers."""
