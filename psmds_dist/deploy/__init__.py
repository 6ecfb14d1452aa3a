"""Clusters: started or connected by name, checked before a run, and batch jobs that run on them."""
