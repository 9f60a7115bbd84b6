"""From a stage to the SQL that turns its inputs' changes into its own."""
