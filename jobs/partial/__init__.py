"""Partial views: nothing is stored of them; the keys that are asked for are computed, kept while used, kept fresh."""
