"""The incremental engine: stages and the rules that maintain them."""
