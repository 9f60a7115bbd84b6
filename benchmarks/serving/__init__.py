"""Look-ups over HTTP: the clients, and the same look-ups by other ways."""
