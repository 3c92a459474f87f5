"""Architecture files of stepzero under Python: see stepzero.arch."""
