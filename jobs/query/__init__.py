"""What a session does without a JVM: statements, pull and push queries, the prompt."""
