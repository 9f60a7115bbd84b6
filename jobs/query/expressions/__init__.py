"""Type inference: what is implicit in an expression's text made explicit in its tree."""
