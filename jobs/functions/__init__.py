"""The functions of the language: scalar, aggregate, and those that users write in Python."""
