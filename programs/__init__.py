"""Programs: method x task."""
