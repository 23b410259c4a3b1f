"""What is no method of ours and answers all the same; see `program`."""
