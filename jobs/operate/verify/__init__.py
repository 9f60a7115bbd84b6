"""The proof of a lake: every table against its own log, its files, its history and its definition, without a JVM."""
