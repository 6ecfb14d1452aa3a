"""Files of other programs as row sources; `psmds_dist.data.opening` selects a reader for a file."""
