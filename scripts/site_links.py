"""Finds links of the site that `./run docs` has built which lead nowhere.

Usage: site_links.py FOLDER. Every relative link of every page must name a file that is there and, where it has one, a place
in it. Exits with 1 where one does not.
"""

import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.places = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if value and name in ("href", "src"):
                self.links.add(value)
            elif value and (name == "id" or (name == "name" and tag == "a")):
                self.places.add(value)


def broken(folder):
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    problems = []
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                problems.append(f"{path.name}: {link} leads to no file")
            elif parts.fragment and target in pages and parts.fragment not in pages[target].places:
                problems.append(f"{path.name}: {link} leads to no place in {target.name}")
    return problems


def main(folder):
    problems = broken(folder)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
