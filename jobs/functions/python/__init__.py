"""The functions that users write in Python: declared, loaded, called by both engines."""
