"""Pull and push queries over tables, without a JVM."""
