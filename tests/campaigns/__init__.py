"""Long searches for faults, with seeds: kills, power cuts. A share of each is among the unit tests."""
