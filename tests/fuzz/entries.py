"""All entries by name."""

from tests.fuzz import commands, damage, library

ENTRIES = {**library.ENTRIES, **commands.ENTRIES, **damage.ENTRIES}
