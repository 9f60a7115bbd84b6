"""What a backend does for a replica: ordered bytes, one atomic write at a time, and reads of one state."""
