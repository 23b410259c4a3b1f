"""What `perf/bench.py` measures, by room: functions that give numbers by name, measured once."""
