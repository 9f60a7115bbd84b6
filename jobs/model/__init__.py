"""The words that every room speaks: types, definitions, relations, stages, errors, settings."""
