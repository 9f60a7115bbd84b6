"""The language: the dialect, the parser of statements, and the generator that writes trees back as text."""
