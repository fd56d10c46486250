"""A headless Chromium, driven through its debugging pipe: pages are opened at a width, asked, clicked and photographed."""

import base64
import json
import os
import shutil
import subprocess
import tempfile

PROGRAMS = ("chromium-headless-shell", "chromium")


def program():
    """Its path; None where it is not installed."""
    return next((found for found in map(shutil.which, PROGRAMS) if found), None)


class Browser:
    def __init__(self):
        commands_read, self._commands = os.pipe()
        self._answers, answers_write = os.pipe()
        self._profile = tempfile.mkdtemp(prefix="lockstep_browser_")

        def connect():  # it reads commands from descriptor 3 and writes answers to 4
            read, write = os.dup(commands_read), os.dup(answers_write)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self._process = subprocess.Popen(
            [program(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={self._profile}"],
            preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands_read)
        os.close(answers_write)
        self._buffer = b""
        self._number = 0
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._commands)
        self._process.kill()
        self._process.wait()
        os.close(self._answers)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _message(self):
        while b"\0" not in self._buffer:
            more = os.read(self._answers, 1 << 16)
            if not more:
                raise RuntimeError("the browser has ended")
            self._buffer += more
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if session:
            command["sessionId"] = session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") != self._number:
                self.events.append(message)
            elif "error" in message:
                raise RuntimeError(f"{method}: {message['error']['message']}")
            else:
                return message["result"]

    def open(self, url, width, height=900, dark=False):
        return Page(self, url, width, height, dark)


class Page:
    """A page that has been loaded. What goes wrong on it is collected."""

    def __init__(self, browser, url, width, height, dark):
        self._browser = browser
        self._target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self._width = width
        self._resize(height)
        self._call("Emulation.setEmulatedMedia",
                   features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self._call("Page.navigate", url=url)
        self.ask("new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))")
        self.settle()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._browser.call("Target.closeTarget", targetId=self._target)

    def _call(self, method, **parameters):
        return self._browser.call(method, self._session, **parameters)

    def _resize(self, height):
        self._call("Emulation.setDeviceMetricsOverride", width=self._width, height=height, deviceScaleFactor=1,
                   mobile=self._width < 600)

    def settle(self):
        """Until what has changed is drawn."""
        self.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))")

    def ask(self, expression):
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def click(self, x, y):
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def drag(self, x, y, to_x):
        steps = [("mousePressed", x), ("mouseMoved", (x + to_x) / 2), ("mouseMoved", to_x), ("mouseReleased", to_x)]
        for kind, at in steps:
            self._call("Input.dispatchMouseEvent", type=kind, x=at, y=y, button="left", buttons=1, clickCount=1)

    def events(self, method):
        self.ask("0")  # what has happened is told before the answer
        return [event["params"] for event in self._browser.events
                if event.get("sessionId") == self._session and event["method"] == method]

    def errors(self):
        """What the console would show in red."""
        told = [event["exceptionDetails"] for event in self.events("Runtime.exceptionThrown")]
        told += [event["entry"] for event in self.events("Log.entryAdded") if event["entry"]["level"] == "error"]
        told += [event["args"] for event in self.events("Runtime.consoleAPICalled") if event["type"] in ("error", "assert")]
        return told

    def requests(self):
        return [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]

    def picture(self, path):
        """All of the page, as a PNG."""
        self._resize(int(self._call("Page.getLayoutMetrics")["cssContentSize"]["height"]))
        self.settle()
        data = self._call("Page.captureScreenshot")
        with open(path, "wb") as file:
            file.write(base64.b64decode(data["data"]))

    def print(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self._call("Page.printToPDF", printBackground=True)["data"]))
