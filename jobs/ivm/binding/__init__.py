"""Binding: at CREATE, every text that a definition will ever be maintained by is bound by the engines, over no rows."""
