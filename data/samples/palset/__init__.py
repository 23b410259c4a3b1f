"""The bundled sample of PAL-Bench, in PAL-Set's form: three Chinese and three English users, all invented."""
