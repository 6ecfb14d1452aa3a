"""All entries by name."""

from tests.fuzz import commands, damage, library

ENTRIES = {**library.ENTRIES, **commands.ENTRIES, **damage.ENTRIES}

SHARE = {"PatternSearchMDS.fit": 3, "scale": 0.3, "psmds fit": 2, "one flipped bit": 2, "broken files": 2, "ids": 0.3}
"""Cases of an entry, where not as many as of the others."""
