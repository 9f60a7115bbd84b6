"""DynamoDB Local, Amazon's own DynamoDB for tests."""
