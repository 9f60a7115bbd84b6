"""A SELECT, from its tree to its meaning: views, pull and push queries and recomputation all start here."""
