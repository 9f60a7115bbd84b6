"""Tools to build, test and measure the project."""
