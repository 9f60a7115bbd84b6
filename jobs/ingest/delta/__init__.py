"""Delta tables that others write: their log, schema and rows as a source reads them. Nothing is ever written there."""
