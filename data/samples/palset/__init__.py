"""The bundled sample of PAL-Bench in the form of PAL-Set: six invented users, zh and en."""
