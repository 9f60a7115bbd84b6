"""What the routes of a server share: the catalog, replicas, inserts, and what is measured."""
