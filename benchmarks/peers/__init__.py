"""The same workloads as others do them, for the columns beside ours; nothing of the product is used here."""
