"""The quality of a view's rows: what is expected of them, and what every view is checked for."""
