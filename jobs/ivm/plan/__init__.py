"""From a query to the stages that maintain it."""
