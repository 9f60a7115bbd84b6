"""Nexmark: an auction house's events and 23 questions about them, to measure and to check maintained views by."""
