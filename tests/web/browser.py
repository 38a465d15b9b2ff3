# SPDX-License-Identifier: MIT
"""A real browser, headless, through the DevTools protocol on two pipes. Standard library only.

    with Browser() as browser:
        page = browser.open("http://127.0.0.1:8080/", width=1200, height=900)
        page.wait_for("document.title !== ''")
        page.evaluate("1 + 1")
"""
import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-default-apps", "--mute-audio",
         "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]


class BrowserError(Exception):
    pass


def command():
    """The browser's name, or None: there is none here."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    def __init__(self):
        self.next_id = 0
        self.buffer = b""
        self.pages = {}
        self.folder = tempfile.TemporaryDirectory(prefix="weft-browser-", ignore_cleanup_errors=True)
        to_read, self.to_browser = os.pipe()
        self.from_browser, to_write = os.pipe()
        # The browser expects the pipes as 3 and 4; copies above that cannot be in each other's way.
        high_read, high_write = dup_above(to_read), dup_above(to_write)
        os.close(to_read)
        os.close(to_write)

        def as_three_and_four():
            os.dup2(high_read, 3)
            os.dup2(high_write, 4)

        self.process = subprocess.Popen([command(), *FLAGS, f"--user-data-dir={self.folder.name}", "about:blank"],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        close_fds=False, preexec_fn=as_three_and_four, start_new_session=True)
        os.close(high_read)
        os.close(high_write)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close", patience=5)
            self.process.wait(5)
        except (BrowserError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)
        self.folder.cleanup()

    def receive(self, deadline):
        """The next message; BrowserError once the deadline has passed."""
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.from_browser], [], [], left)[0]:
                raise BrowserError("the browser does not answer")
            data = os.read(self.from_browser, 1 << 20)
            if not data:
                raise BrowserError("the browser has ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, parameters=None, session=None, patience=20):
        self.next_id += 1
        wanted = self.next_id
        message = {"id": wanted, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + patience
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == wanted:
                break
            self.note(answer)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error'].get('message')}")
        return answer["result"]

    def note(self, event):
        page = self.pages.get(event.get("sessionId"))
        if page is not None and "method" in event:
            page.on_event(event["method"], event["params"])

    def open(self, url, width=1200, height=900, mobile=False, dark=False):
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.size(width, height, mobile)
        page.dark(dark)
        page.call("Page.navigate", {"url": url})
        return page


class Page:
    def __init__(self, browser, session):
        self.browser = browser
        self.session = session
        self.complaints = []  # errors of scripts, and what the console and the browser's own log call errors
        self.requests = []    # addresses that the page has asked for

    def call(self, method, parameters=None, patience=20):
        return self.browser.call(method, parameters, self.session, patience)

    def on_event(self, method, parameters):
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([a.get("value") for a in parameters["args"]]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"] + " " + parameters["entry"].get("url", ""))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def evaluate(self, expression, patience=20):
        """What a JavaScript expression gives; a promise is waited for."""
        answer = self.call("Runtime.evaluate", {"expression": expression, "awaitPromise": True, "returnByValue": True}, patience)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def wait_for(self, expression, patience=15):
        """Until the expression is true; what it gives then."""
        deadline = time.monotonic() + patience
        while True:
            try:
                value = self.evaluate(expression)
            except BrowserError as error:
                value, last = None, str(error)
            else:
                last = repr(value)
            if value:
                return value
            if time.monotonic() > deadline:
                raise BrowserError(f"in vain: {expression} ({last})")
            time.sleep(0.1)

    def size(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride",
                  {"width": width, "height": height, "deviceScaleFactor": 2 if mobile else 1, "mobile": mobile})

    def offline(self, on):
        self.call("Network.emulateNetworkConditions", {"offline": on, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1})

    def dark(self, on):
        self.call("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]})

    def click(self, selector):
        """As a user does: where the middle of the element is."""
        at = self.evaluate(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center', behavior: 'instant'}});"
                           " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", {"type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1})

    def press(self, key, code):
        for kind in ("rawKeyDown", "char", "keyUp"):
            self.call("Input.dispatchKeyEvent", {"type": kind, "key": key, "windowsVirtualKeyCode": code, "text": "\r" if key == "Enter" else ""})

    def type(self, text):
        self.call("Input.insertText", {"text": text})

    def download_to(self, folder):
        self.browser.call("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})

    def screenshot(self, path, whole=False):
        data = self.call("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))


def dup_above(fd):
    return fcntl.fcntl(fd, fcntl.F_DUPFD, 10)
