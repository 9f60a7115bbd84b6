"""The HTTP server: pull and push queries, inserts, and what operators ask; no JVM."""
