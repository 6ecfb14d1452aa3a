"""Where rows come from: arrays, files, stores, points; and the rows that a process holds."""
