"""All entries by name."""

from tests.fuzz import commands, damage, library, readers, rules

ENTRIES = {**library.ENTRIES, **rules.ENTRIES, **commands.ENTRIES, **damage.ENTRIES, **readers.ENTRIES}

SHARE = {
    "PatternSearchMDS.fit": 3,
    "psmds fit": 2,
    "one flipped bit": 2,
    "broken files": 2,
    "files of other programs": 12,
    "psmds landmarks": 0.7,
    "psmds info, quality, export": 0.4,
    "psmds on a full disk": 0.4,
    "scale": 0.3,
    "ids": 0.3,
}
"""Relative number of cases: more for the main entries, fewer for slow ones."""
