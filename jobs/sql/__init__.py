"""Text and trees: statements, the dialect, and how both are written back as text."""
