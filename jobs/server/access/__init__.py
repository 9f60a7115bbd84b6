"""Who may ask for what, and where the server may listen."""
