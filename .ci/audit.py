"""List known vulnerabilities of the installed packages; `make audit`.

Fails only if an upgrade fixes one. Without a network, or if the service does not answer, the check is skipped.
"""

import json
import subprocess
import sys
import tempfile
from typing import Any

SECONDS = 50


def summarize(report: dict[str, Any]) -> tuple[list[str], bool]:
    """Format a report of pip-audit as lines; also return whether an upgrade would fix anything."""
    lines, fixable = [], False
    for package in report["dependencies"]:
        for found in package.get("vulns", []):
            fixed = found["fix_versions"]
            advice = f"upgrade to {fixed[-1]}" if fixed else "no version fixes it yet"
            lines.append(f"{package['name']} {package['version']}: {found['id']}, {advice}")
            fixable = fixable or bool(fixed)
    return lines, fixable


def installed() -> str:
    """List the installed packages with their versions, except this project and pip."""
    command = [sys.executable, "-m", "pip", "freeze", "--exclude-editable"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return "".join(f"{line}\n" for line in listed.splitlines() if "==" in line)


def audit() -> int:
    """Print the vulnerabilities and return the exit code."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
        listed.write(installed())
        listed.flush()
        command = [sys.executable, "-m", "pip_audit", "-r", listed.name, "--no-deps", "--disable-pip"]
        options = ["--format", "json", "--progress-spinner", "off", "--timeout", "10"]
        try:
            done = subprocess.run(command + options, capture_output=True, text=True, timeout=SECONDS, check=False)
            report = json.loads(done.stdout)
        except (subprocess.TimeoutExpired, json.JSONDecodeError) as error:
            reason = done.stderr.strip().splitlines()[-1:] if isinstance(error, json.JSONDecodeError) else [error]
            print("audit: skipped, no answer:", *reason)
            return 0
    lines, fixable = summarize(report)
    print(*lines, f"audit: {len(lines)} known vulnerabilities in {len(report['dependencies'])} packages", sep="\n")
    return int(fixable)


if __name__ == "__main__":
    sys.exit(audit())
