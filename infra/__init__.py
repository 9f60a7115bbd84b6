"""Programs beside the product: the jars that it runs on, and a real broker for tests and benchmarks."""
