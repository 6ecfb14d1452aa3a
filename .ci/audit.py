"""Ask whether what is installed beside this project has known vulnerabilities; `make audit`.

Fails only on those that a newer version mends. Being offline, or a service that does not answer, fails nothing.
"""

import json
import subprocess
import sys
import tempfile
from typing import Any

SECONDS = 50


def judge(report: dict[str, Any]) -> tuple[list[str], bool]:
    """Put a report of pip-audit into lines, and tell whether an upgrade would help."""
    lines, mendable = [], False
    for package in report["dependencies"]:
        for found in package.get("vulns", []):
            mended = found["fix_versions"]
            advice = f"upgrade to {mended[-1]}" if mended else "no version mends it yet"
            lines.append(f"{package['name']} {package['version']}: {found['id']}, {advice}")
            mendable = mendable or bool(mended)
    return lines, mendable


def installed() -> str:
    """List what is installed with its versions, this project and pip itself apart."""
    command = [sys.executable, "-m", "pip", "freeze", "--exclude-editable"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return "".join(f"{line}\n" for line in listed.splitlines() if "==" in line)


def audit() -> int:
    """Return the exit code."""
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
            print("audit: skipped, as nobody answers:", *reason)
            return 0
    lines, mendable = judge(report)
    print(*lines, f"audit: {len(lines)} known vulnerabilities in {len(report['dependencies'])} packages", sep="\n")
    return int(mendable)


if __name__ == "__main__":
    sys.exit(audit())
