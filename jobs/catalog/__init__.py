"""What is defined in a lake, and the files that say so."""
