"""What runs inside the environments of other people's systems: no file here imports anything of Mempiler."""
