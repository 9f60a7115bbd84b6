"""What tests share and pytest does not collect: cases, harnesses, the oracle, tables and catalogs made by hand."""
