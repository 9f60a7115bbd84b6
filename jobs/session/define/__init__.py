"""The definitions that CREATE and INSERT INTO … SELECT make, checked for the catalog."""
