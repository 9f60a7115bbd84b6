"""What the project is built, tested and measured with."""
