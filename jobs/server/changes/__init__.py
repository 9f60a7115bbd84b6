"""Push: the changes of views, read and encoded once for all who subscribe to the same."""
