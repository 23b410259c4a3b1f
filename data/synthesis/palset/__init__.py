"""PAL-Set, written by a language model: one file per stage, `make.make_palset` runs them all."""
