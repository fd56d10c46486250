"""Finds links that lead nowhere in the site that `./run docs` has built.

Usage: site_links.py FOLDER. Every relative link of a page that comes of a Markdown file must name a file that is there and,
where it has one, a place in it; Doxygen answers for those of the reference itself. Exits with 1 where one does not.
"""

import html.parser
import pathlib
import sys
import urllib.parse

import markdown_filter


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


def broken(folder, names):
    """`names`: of the pages whose links are looked at."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    problems = []
    for path in [(folder / name).resolve() for name in names]:
        if path not in pages:
            problems.append(f"{path.name}: there is no such page")
            continue
        for link in sorted(pages[path].links):
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
    problems = broken(folder, markdown_filter.pages())
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
