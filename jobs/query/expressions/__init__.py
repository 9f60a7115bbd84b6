"""Types of expressions, and what is implicit in their text made explicit in their trees."""
