"""What any program that runs for hours needs: atomic files, locks, signals, streams, text."""
