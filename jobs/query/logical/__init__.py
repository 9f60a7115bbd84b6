"""The logical query: what the front end makes of a tree, and the questions that its readers ask of it."""
