"""What a run is exported to: environments for other trainers, and files of public harnesses."""
