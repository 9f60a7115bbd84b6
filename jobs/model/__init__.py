"""The values that all packages share: types, definitions, relations, stages, errors, settings."""
