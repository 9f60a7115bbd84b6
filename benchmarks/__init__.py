"""Measurements of the whole: each is one command, prints its figures, and says what they are compared with."""
