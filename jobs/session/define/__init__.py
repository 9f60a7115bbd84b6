"""From a CREATE statement to a definition that the catalog can take."""
