"""ksqlDB's cases for pull and push queries, asked over HTTP of the server."""
