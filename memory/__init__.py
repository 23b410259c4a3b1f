"""What methods write into and search."""
