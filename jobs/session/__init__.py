"""Statements at work: what each asks for, done against catalog, topics and tables."""
