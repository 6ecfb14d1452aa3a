"""The input check, and the pass that writes and checks a store."""
