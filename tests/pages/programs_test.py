"""Tests of programs.py, and of what makes a site of the pages: the filter of Markdown, the finder of broken links."""

import pathlib
import sys
import tempfile
import types
import unittest

import programs

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"))
import markdown_filter  # noqa: E402
import site_links  # noqa: E402


def done(stdout="", stderr="", status=0):
    return types.SimpleNamespace(stdout=stdout, stderr=stderr, returncode=status)


class LinesTest(unittest.TestCase):
    def test_lines_come_in_order_with_others_between_them(self):
        printed = done("saved\n30/30 - 0s\nrestored\n")
        self.assertIsNone(programs.problem_of(printed, ["saved", "restored"]))
        self.assertIn("saved", programs.problem_of(printed, ["restored", "saved"]))
        self.assertIn("lost", programs.problem_of(printed, ["lost"]))

    def test_numbers_are_masked_but_for_devices_and_lines(self):
        printed = done("loss 0.25 [main.cc:12]\n/CPU:1: 1,024 bytes\n")
        self.assertIsNone(programs.problem_of(printed, ["loss 1e-3 [main.cc:12]", "/CPU:1: 7 bytes"]))
        self.assertIsNotNone(programs.problem_of(printed, ["loss 0.25 [main.cc:13]"]))
        self.assertIsNotNone(programs.problem_of(printed, ["/CPU:2: 1,024 bytes"]))

    def test_units_of_time_and_spaces_are_alike(self):
        printed = done("map    980 us  100%\n")
        self.assertIsNone(programs.problem_of(printed, ["map  1.25 ms    97%"]))
        self.assertIsNotNone(programs.problem_of(printed, ["map  1.25 kg    97%"]))

    def test_lines_of_the_log_are_looked_for_on_standard_error(self):
        printed = done(stderr="2026-11-15 04:50:12.345 warning lockstep: one device, 2 cores\n")
        self.assertIsNone(programs.problem_of(printed, ["warning lockstep: one device, 4 cores"]))
        self.assertIsNotNone(programs.problem_of(printed, ["info lockstep: one device, 4 cores"]))

    def test_status_and_work_of_the_devices_count(self):
        self.assertIn("status 1, not 0", programs.problem_of(done(status=1), []))
        self.assertIsNone(programs.problem_of(done("/CPU:0: 110 flops\n/CPU:1: 100 flops\n"), []))
        for idle in ("/CPU:0: 110 flops\n/CPU:1: 0 flops\n", "/CPU:0: 0 flops\n"):
            self.assertIn("have not computed the same", programs.problem_of(done(idle), []))

    def test_a_line_of_a_comment_may_go_on_in_the_next(self):
        self.assertEqual(programs.joined(["a", "  b", "c"]), ["a b", "c"])


class SourceTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.program = self.root / "program"
        self.program.write_text('#!/bin/sh\necho "got $1"\nexit ${2:-0}\n')
        self.program.chmod(0o755)
        self.source = self.root / "program.cc"
        self.addCleanup(self.folder.cleanup)

    def problems(self, comment):
        self.source.write_text("int main() {}\n\n" + comment)
        return programs.check_source(self.program, self.source)

    def test_a_program_says_what_it_prints(self):
        self.assertEqual(self.problems("// Prints:\n//   got\n//\n// Prints, given a 3, and ends with status 3:\n//   got a\n"), [])
        self.assertEqual(len(self.problems("// Prints:\n//   got\n//\n// Prints, given a:\n//   got b\n")), 1)
        self.assertEqual(len(self.problems("// Nothing.\n")), 1)

    def test_a_page_names_the_program_whose_output_it_shows(self):
        page = self.root / "page.md"
        page.write_text("Text\n\n[It](../../examples/program.cc) prints:\n\n```text\ngot\n```\n")
        self.assertEqual(programs.check_page(page, self.root), [])
        page.write_text("[It](../../examples/program.cc) prints:\n\n```text\nlost\n```\n")
        self.assertIn("lost", programs.check_page(page, self.root)[0])
        page.write_text("It prints:\n\n```text\ngot\n```\n")
        self.assertIn("names 0 programs", programs.check_page(page, self.root)[0])


class SiteTest(unittest.TestCase):
    @staticmethod
    def filtered(page, text):
        return markdown_filter.filtered(pathlib.Path(page), text)

    def test_links_between_pages_are_references(self):
        self.assertEqual(self.filtered("docs/a.md", "# A\n\n[b](guide/b.md), [B\n too](guide/b.md#part-one)\n"),
                         '# A {#docs_a}\n\n@ref docs_guide_b "b", @ref docs_guide_b-part-one "B too"\n')
        self.assertEqual(self.filtered("docs/guide/b.md", "# B\n## Part one\n[up](../../README.md) [here](#part-one)\n"),
                         "# B {#docs_guide_b}\n## Part one {#docs_guide_b-part-one}\n"
                         '@ref index "up" @ref docs_guide_b-part-one "here"\n')

    def test_headings_are_words(self):
        self.assertEqual(self.filtered("docs/a.md", "# A\n## `lockstep scale`\n`x`\n"),
                         "# A {#docs_a}\n## lockstep scale {#docs_a-lockstep-scale}\n`x`\n")

    def test_an_index_holds_the_pages_of_its_folder(self):
        self.assertEqual(self.filtered("docs/guide/README.md", "[b](b.md) [c](../c.md)\n"),
                         '@subpage docs_guide_b "b" @ref docs_c "c"\n')

    def test_other_files_are_those_of_the_checkout(self):
        self.assertEqual(self.filtered("docs/guide/b.md", "[e](../../examples/e.cc)\n"),
                         '<a href="../../../examples/e.cc">e</a>\n')

    def test_code_and_addresses_stay_as_they_are(self):
        text = "[site](https://example.org)\n```sh\n# no heading [x](y.md)\n```\n"
        self.assertEqual(self.filtered("docs/a.md", text), text)

    def test_links_that_lead_nowhere_are_found(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "a.html").write_text('<a href="b.html#x">b</a> <a id="y"></a> <a href="#y">y</a> <a href="http://e.org/z">z</a>')
            (folder / "b.html").write_text('<h1 id="x">b</h1>')
            self.assertEqual(site_links.broken(folder, ["a.html"]), [])
            self.assertEqual(site_links.broken(folder, ["c.html"]), ["c.html: there is no such page"])
            (folder / "b.html").write_text("<h1>b</h1>")
            self.assertEqual(site_links.broken(folder, ["a.html"]), ["a.html: b.html#x leads to no place in b.html"])
            self.assertEqual(site_links.broken(folder, ["b.html"]), [])
            (folder / "b.html").unlink()
            self.assertEqual(site_links.broken(folder, ["a.html"]), ["a.html: b.html#x leads to no file"])


if __name__ == "__main__":
    unittest.main()
