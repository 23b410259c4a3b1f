"""Memories of a service, as those of this process."""
