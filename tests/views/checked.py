"""A page that is whole and asks for nothing."""

from collections.abc import Container
from html.parser import HTMLParser

VOID = {"meta", "br", "img", "link", "hr", "input"}


class Checked(HTMLParser):
    """Every tag that opens closes, in order; nothing is run or fetched, and links lead to `files` of the report."""

    def __init__(self, page: str | bytes, files: Container[str] = ()):
        super().__init__()
        self.files = files
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(page.decode() if isinstance(page, bytes) else page)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "iframe", "object")
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self._look(dict(attrs))

    def handle_startendtag(self, tag, attrs):
        self._look(dict(attrs))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data

    def _look(self, attributes: dict[str, str | None]):
        assert not any(name.startswith("on") for name in attributes)
        for name in ("href", "xlink:href", "src"):
            to = attributes.get(name) or "#"
            if not to.startswith(("#", "data:")):
                assert to in self.files
                self.links.append(to)
        if attributes.get("id"):
            self.ids.append(attributes["id"] or "")
