"""Incremental view maintenance: a query becomes stages, a stage becomes rules, a refresh runs them."""
