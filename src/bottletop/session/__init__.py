"""Recordings: one SQLite file `NAME.btrec` that survives kill -9 and replays to the same verdict.

`writer.Recorder` writes one from a live run, `reader.open_recording` reads one from anybody.
"""
