"""The report on known vulnerabilities in CI."""

import runpy
from pathlib import Path

import pytest

AUDIT = runpy.run_path(str(Path(__file__).parent.parent / ".ci" / "audit.py"))


def package(name, *vulnerabilities):
    return {"name": name, "version": "1.0", "vulns": [{"id": i, "fix_versions": f} for i, f in vulnerabilities]}


@pytest.mark.parametrize(
    ("packages", "lines", "fails"),
    [
        ([package("fine"), {"name": "odd", "skip_reason": "not on PyPI"}], [], False),
        ([package("bad", ("CVE-1", []))], ["bad 1.0: CVE-1, no version fixes it yet"], False),
        (
            [package("bad", ("CVE-1", []), ("CVE-2", ["1.1", "2.0"])), package("fine")],
            ["bad 1.0: CVE-1, no version fixes it yet", "bad 1.0: CVE-2, upgrade to 2.0"],
            True,
        ),
    ],
)
def test_only_what_an_upgrade_fixes_fails(packages, lines, fails):
    assert AUDIT["summarize"]({"dependencies": packages}) == (lines, fails)


def test_what_is_installed_is_listed_with_versions():
    listed = AUDIT["installed"]().splitlines()
    assert any(line.startswith("numpy==") for line in listed)
    assert not any("psmds" in line for line in listed)
