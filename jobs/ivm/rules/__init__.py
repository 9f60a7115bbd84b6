"""The maintenance rules: the SQL that turns the changes of a stage's inputs into its own."""
