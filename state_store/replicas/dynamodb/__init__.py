"""Replicas in DynamoDB: shared by many readers, for as long as one process writes."""
