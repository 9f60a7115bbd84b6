"""What a benchmark sees of processes, and draws: processor time, memory, a chart over time."""
