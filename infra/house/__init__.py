"""The house of the code: its floors and limits, measured in the tree and written where they are read."""
