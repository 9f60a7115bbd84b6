"""What a pull query may have that a view may not: queries that stand anywhere in an expression, and an order."""
