"""The planner: from a query to the stages that maintain it."""
