"""Opens the pages of `lockstep report` and `lockstep watch` in a browser, as people do: at the width of a phone and of a
screen, in light and dark, clicking what can be clicked. Without Chromium it says so, and passes.

    report_pages.py --tool PATH [--screenshots FOLDER] [--needed]
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import browser

HOSTILE = "</script><img src=x onerror=\"window.hacked=1\"><b>"
WIDTHS = (400, 1400)
options = None

# Of each canvas, how many colours it has: a blank one has one.
CANVASES = """[...document.querySelectorAll('canvas')].filter(c => c.offsetParent).map(c => {
  const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, colours = new Set();
  for (let i = 0; i < data.length; i += 4) if (data[i + 3]) colours.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
  return [c.id, colours.size];
})"""


# The middle of the widest bar of the timeline, as far as it is in view.
WIDEST_BAR = """(() => {
  const chart = charts.get('plot-timeline'), box = chart.canvas.getBoundingClientRect(), area = chart.chartArea;
  const bars = chart.getDatasetMeta(0).data.map(bar => bar.getProps(['x', 'base', 'y'], true)).map(({x, base, y}) => {
    const left = Math.max(area.left, Math.min(x, base)), right = Math.min(area.right, Math.max(x, base));
    return {width: right - left, place: [box.left + (left + right) / 2, box.top + y]};
  });
  return bars.reduce((a, b) => b.width > a.width ? b : a).place;
})()"""


def tool(*words, **more):
    return subprocess.run([options.tool, *map(str, words)], check=True, capture_output=True, text=True, **more).stdout


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = tempfile.TemporaryDirectory(prefix="lockstep_pages_")
        folder = cls.folder = pathlib.Path(cls.made.name)
        tool("train", "mlp", "--epochs", 3, "--train-size", 4000, "--test-size", 500, "--devices", 2, "--threads", 1,
             "--output", folder / "run")
        cls.record = json.loads((folder / "run" / "record.json").read_text())
        cls.browser = browser.Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        cls.made.cleanup()

    def page_of(self, name, record):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "record.json").write_text(json.dumps(record))
        tool("report", folder)
        return (folder / "report.html").as_uri()

    def rich_record(self):
        """With an input pipeline too, which a run on arrays has not."""
        stage = {"name": "prefetch", "arguments": "AUTOTUNE", "where": "main.cc:20", "elements": 781, "elements_per_s": 780.2,
                 "self_ns": 1100.0, "busy": 0.0, "threads": 1, "slots": 4, "ready": 0.4, "waited": 0.7, "inputs": []}
        below = {**stage, "name": "map", "arguments": "", "elements": 100224, "elements_per_s": 100112.0, "self_ns": 8200.0,
                 "busy": 0.68, "threads": 0, "slots": 0, "inputs": [{**stage, "name": "from_tensor_slices", "threads": 0}]}
        record = json.loads(json.dumps(self.record))
        record["input"] = {"seconds": 1.0, "elements": 781, "consumer": 0.2, "root": {**stage, "inputs": [below]},
                           "bottleneck": "map", "where": "main.cc:20", "cause": "it runs on one thread",
                           "fix": ".map(f, {.num_parallel_calls = tf::data::AUTOTUNE})", "speedup": 1.9}
        record["verdicts"] = [{"id": "input-bound", "cause": "the replicas wait for their next batch 61% of the time",
                               "evidence": "input_wait 3.1 of 5.1 ms per step (median 3, p95 3.4); compute 1.9 ms",
                               "fix": "dataset = dataset.map(f, {.num_parallel_calls = tf::data::AUTOTUNE});",
                               "gain": "up to 2.55x, from 5.1 to 2 ms per step, if the input is ready in time", "speedup": 2.55}]
        return record

    def look_at(self, name, url, width, dark=False, own_requests=1):
        with self.browser.open(url, width, dark=dark) as page:
            self.assertEqual(page.errors(), [])
            drawn = page.ask(CANVASES)
            self.assertGreater(len(drawn), 0)
            for canvas, colours in drawn:
                self.assertGreater(colours, 3, f"{name}: {canvas} is blank")
            wide = page.ask("document.documentElement.scrollWidth")
            self.assertLessEqual(wide, width, f"{name}: the page is wider than the window")
            self.assertEqual(len(page.requests()), own_requests, page.requests())
            self.assertIsNone(page.ask("window.hacked"))
            self.assertEqual(page.ask("document.images.length"), 0)
            if options.screenshots:
                page.picture(f"{options.screenshots}/{name}-{width}-{'dark' if dark else 'light'}.png")
            self.click_everything(page)
            self.assertEqual(page.errors(), [])
            return [canvas for canvas, _ in drawn]

    def click_everything(self, page):
        before = page.ask("document.querySelector('#timeline-range')?.textContent")
        box = page.ask("(() => { const c = document.getElementById('plot-timeline'); if (!c) return null; c.scrollIntoView();"
                       " const b = c.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()")
        if box:
            left, top, width, height = box
            page.drag(left + 0.5 * width, top + 0.3 * height, left + 0.7 * width)
            self.assertNotEqual(page.ask("document.querySelector('#timeline-range').textContent"), before, "dragging zooms")
            self.assertEqual(page.ask("document.getElementById('plot-timeline').getBoundingClientRect().top"), top,
                             "the plot stays where it is")
            page.settle()
            page.click(*page.ask(WIDEST_BAR))
            page.settle()  # Chart.js looks at clicks when it draws
            self.assertIn("(", page.ask("document.querySelector('#timeline-span').textContent"), "a click names a span")
            page.ask("[...document.querySelectorAll('#timeline button')].find(b => b.textContent === 'All').click()")
            self.assertEqual(page.ask("document.querySelector('#timeline-range').textContent"), before)
        page.ask("document.querySelectorAll('button, summary').forEach(one => one.click())")
        page.ask("document.querySelectorAll('select').forEach(one => { for (const choice of one.options) {"
                 " one.value = choice.value; one.dispatchEvent(new Event('change')); } })")
        # Legends hide what they name.
        page.ask("for (const chart of charts.values()) { chart.legend.options.onClick.call(chart.legend, {},"
                 " chart.legend.legendItems?.[0] ?? {datasetIndex: 0}, chart.legend); }")

    def test_a_run(self):
        url = self.page_of("run", self.record)
        for width in WIDTHS:
            for dark in (False, True):
                drawn = self.look_at("run", url, width, dark)
                self.assertLessEqual({"plot-losses", "plot-curve-0", "plot-time", "plot-replicas", "plot-timeline",
                                      "plot-memory", "plot-kernels"}, set(drawn))

    def test_with_verdict_and_pipeline(self):
        url = self.page_of("rich", self.rich_record())
        for width in WIDTHS:
            self.look_at("rich", url, width)
        with self.browser.open(url, 1400) as page:
            self.assertIn("input-bound", page.ask("document.getElementById('verdicts').textContent"))
            self.assertEqual(page.ask("document.querySelectorAll('#input tbody tr').length"), 3)
            self.assertLess(page.ask("document.getElementById('verdicts').offsetTop"),
                            page.ask("document.getElementById('curves').offsetTop"))
            if options.screenshots:
                page.print(f"{options.screenshots}/rich.pdf")

    def test_how_it_scales(self):
        scale, plan = self.folder / "scale.json", self.folder / "plan.json"
        tool("scale", "mlp", "--devices", "1,2", "--steps", 6, "--output", scale)
        tool("plan", "mlp", "--gpus", "1,8,64", "--output", plan)
        plots = {"plot-scale-rate-0", "plot-scale-time-0", "plot-scale-rate-1", "plot-scale-time-1", "plot-plan-efficiency",
                 "plot-plan-time"}
        (self.folder / "scaled").mkdir()
        (self.folder / "scaled" / "record.json").write_text(json.dumps(self.record))
        for name, sources in (("scaled", (self.folder / "scaled", scale, plan)), ("scaling", (scale, plan))):
            page = self.folder / f"{name}.html"
            tool("report", *sources, "--output", page)
            for width in WIDTHS:
                for dark in (False, True):
                    drawn = set(self.look_at(name, page.as_uri(), width, dark))
                    self.assertLessEqual(plots, drawn)
                    self.assertEqual("plot-time" in drawn, name == "scaled")
            with self.browser.open(page.as_uri(), 1400) as opened:
                self.assertNotIn("[object", opened.ask("document.getElementById('page').textContent"))
                self.assertIn("assumed: that 80% of the nominal", opened.ask("document.getElementById('plan').textContent"))

    def test_workers_say_how_old_the_others_figures_are(self):
        record = {**self.record, "state": "running", "process": 0, "others_ms": self.record["updated_ms"] - 60000}
        with self.browser.open(self.page_of("workers", record), 400) as page:
            self.assertEqual(page.errors(), [])
            self.assertIn("Other workers as of ", page.ask("document.getElementById('headline').textContent"))

    def test_names_are_text(self):
        def hostile(value, key=""):
            if isinstance(value, dict):
                return {name: hostile(inner, name) for name, inner in value.items()}
            if isinstance(value, list):
                return [hostile(inner, key) for inner in value]
            return value + HOSTILE if isinstance(value, str) and key not in ("state",) else value

        record = hostile(self.rich_record())
        record["configuration"][HOSTILE] = HOSTILE
        url = self.page_of("hostile", record)
        for width in WIDTHS:
            self.look_at("hostile", url, width)

    def test_a_run_that_has_just_begun(self):
        record = {**self.record, "state": "running", "process": 0, "step": 0, "epoch": 0, "replicas": [], "curves": [],
                  "history_epochs": [], "losses": [], "memory": [], "timeline": None, "kernels": None, "verdicts": [], "input": None}
        with self.browser.open(self.page_of("begun", record), 400) as page:
            self.assertEqual(page.errors(), [])
            self.assertIn("Too few steps", page.ask("document.body.textContent"))

    def test_live(self):
        folder = self.folder / "live"
        folder.mkdir()
        running = {**self.record, "state": "running", "process": 0}
        (folder / "record.json").write_text(json.dumps({**running, "step": 5}))
        server = subprocess.Popen([options.tool, "watch", folder, "--http", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        try:
            url = server.stdout.readline().split()[1]
            with self.browser.open(url, 1400) as page:
                shown = "new Promise(done => { const look = () => document.querySelector('.tiles')?.textContent.includes('%s')" \
                        " ? done(true) : setTimeout(look, 50); look(); })"
                page.ask(shown % "5steps")
                draft = folder / "draft"
                draft.write_text(json.dumps({**running, "step": 4711}))
                draft.rename(folder / "record.json")
                page.ask(shown % "4,711steps")
                self.assertEqual(page.errors(), [])
                for canvas, colours in page.ask(CANVASES):
                    self.assertGreater(colours, 3, f"live: {canvas} is blank")
        finally:
            server.terminate()
            server.wait()
            server.stdout.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("--screenshots", help="a folder for pictures of all pages")
    parser.add_argument("--needed", action="store_true", help="fail where there is no Chromium")
    options, rest = parser.parse_known_args()
    if not browser.program():
        print("skipped: there is no chromium-headless-shell (./run check pages installs it)")
        sys.exit(1 if options.needed else 0)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=1)
