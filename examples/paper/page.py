"""The results as one file of HTML that holds its pictures."""

from __future__ import annotations

import base64
import re
from pathlib import Path

STYLE = """body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; display: block; overflow-x: auto } img { max-width: 100% }
th, td { border-bottom: 1px solid #ccc; padding: .2rem .6rem; text-align: right }
:is(th, td):first-child { text-align: left }"""


def page(text: str, folder: Path) -> str:
    """Return Markdown as a page of HTML, with the pictures of a folder inside."""
    from markdown import markdown

    body = markdown(text, extensions=["tables"])
    body = re.sub(r'(?<=src=")[^":]+\.png', lambda name: _data(folder / name[0]), body)
    title = text.splitlines()[0].lstrip("# ")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title>\n'
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _data(picture: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()
