"""The HTTP server: routes, tokens, subscriptions, inserts, and what happens when things go wrong."""
