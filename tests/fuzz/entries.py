"""All entries by name."""

from tests.fuzz import library

ENTRIES = {**library.ENTRIES}
