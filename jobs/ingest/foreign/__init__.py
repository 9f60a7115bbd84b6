"""Tables that others write, whatever their format: what a source asks of one; Iceberg tables, folders of files."""
