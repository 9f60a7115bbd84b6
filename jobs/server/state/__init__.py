"""What the routes of a server share: who may ask, catalog, replicas, the processes and feeds of queries, inserts."""
