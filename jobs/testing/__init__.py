"""Tests of views, as users write them: given rows, and the rows and changes that must come of them."""
