"""The gateway as operators have it: a real Prometheus scrapes it, a real Chromium shows its page, and it is told to end in mid-load.

    end_to_end.py FOLDER SECONDS

FOLDER has the programs `gateway` and `load`. Screenshots are kept in FOLDER/gateway-screens. Needs `prometheus` and `chromium`.
"""

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
import zlib
from html.parser import HTMLParser
from pathlib import Path

HERE = Path(__file__).resolve().parent
RULES = HERE / "../../../docs/observability/alerts.yml"
FLEET = HERE / "../fleet.toml"

checked = 0


def check(is_so, what):
    """Everything that is held to be so is counted: a run that looked at nothing must not pass."""
    global checked
    if not is_so:
        sys.exit(f"FAILED: {what}")
    checked += 1


def same(what, one, other):
    check(one == other, f"{what}: {one} and {other}")


def get(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def until(what, seconds, is_so):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if is_so():
                return
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit(f"FAILED: {what}: not within {seconds} s")


def becomes_same(what, seconds, expected, look):
    """What is looked at is as expected in time; else what it is is told. However often it is looked at, that is one check."""
    global checked
    end, found = time.monotonic() + seconds, look()
    before = checked
    while found != expected and time.monotonic() < end:
        time.sleep(0.2)
        found = look()
    checked = before
    same(what, found, expected)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Gateway:
    """A gateway on free ports; without a provider it has a mock one."""

    def __init__(self, folder, *options):
        any_port = "127.0.0.1:0"
        command = [folder / "gateway", "--listen", any_port, "--admin", any_port, *options]
        if "--provider" not in options:
            command += ["--mock", any_port]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        processes.append(self.process)
        self.at = {}
        while "try" not in self.at:
            line = self.process.stdout.readline()
            check(line, "the gateway says where it is")
            name, _, rest = line.partition(" ")
            self.at[name] = rest.split()[0].rstrip("/")

    def metrics(self):
        return get(self.at["metrics"])

    def number(self, name):
        """The sum over all samples of a name."""
        found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", self.metrics(), re.MULTILINE)
        return int(sum(map(float, found)))

    def load_command(self, folder, mock, *options):
        admin = self.at["fleet"].removesuffix("/fleet")
        return [folder / "load", "--gateway", self.at["clients"], "--admin", admin, "--mock", mock, *options]

    def end(self, limit, code=0, times=1):
        """Tells it to end; answers how long that took."""
        since = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        for _ in range(times - 1):
            # Two that come before it has seen the first are one.
            line = self.process.stdout.readline()
            while line and not line.startswith("draining:"):
                line = self.process.stdout.readline()
            check(line, "it says that it drains")
            self.process.send_signal(signal.SIGTERM)
        said, _ = self.process.communicate(timeout=limit)
        same("exit code", self.process.returncode, code)
        same("it says that it is drained", "drained\n" in said, code == 0)
        return time.monotonic() - since


class Prometheus:
    def __init__(self, folder, target):
        config = folder / "prometheus.yml"
        config.write_text(
            "global: { scrape_interval: 1s, evaluation_interval: 1s }\n"
            f"rule_files: [{json.dumps(str(RULES.resolve()))}]\n"
            "scrape_configs:\n"
            "  - job_name: gateway\n"
            f"    static_configs: [{{ targets: [{json.dumps(target)}] }}]\n"
        )
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
                   f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
        self.process = subprocess.Popen(command)
        processes.append(self.process)
        until("Prometheus is ready", 60, lambda: "ready" in get(f"{self.url}/-/ready").lower())

    def ask(self, path, **arguments):
        answer = json.loads(get(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"))
        same("Prometheus answers", answer["status"], "success")
        return answer["data"]

    def by(self, query, label):
        """The values of a query by one of its labels."""
        result = self.ask("query", query=query)["result"]
        return {one["metric"].get(label, ""): int(float(one["value"][1])) for one in result}

    def one(self, query):
        return self.by(query, "").get("", 0)


class Page(HTMLParser):
    """The cards of the page: for each key its counts, and all that is written on it; and how often it has updated itself."""

    def __init__(self, text):
        super().__init__()
        self.updates = 0
        self.keys, self.texts, self.key, self.count, self.depth, self.state = {}, {}, None, None, 0, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "body":
            self.updates = int(attributes.get("data-updates", 0))
        elif tag == "article":
            self.key = attributes["data-key"]
            self.keys[self.key], self.texts[self.key] = {}, ""
        elif "data-count" in attributes:
            self.count = attributes["data-count"]

    def handle_endtag(self, tag):
        if tag == "article":
            self.key = self.count = None

    def handle_data(self, data):
        if self.key is None:
            return
        self.texts[self.key] += data + " "
        if self.count and data.strip().isdigit():
            self.keys[self.key][self.count] = int(data)
            self.count = None


def chromium(profile, *options):
    command = ["chromium", "--headless", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}",
               "--hide-scrollbars", "--virtual-time-budget=3000", *options]
    if os.getuid() == 0:
        command.insert(1, "--no-sandbox")
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    check(done.returncode == 0, f"chromium: {done.stderr}")
    return done.stdout


def pixels(path):
    """Rows of a PNG of 8-bit samples that is not interlaced (ISO/IEC 15948), as bytes, and the bytes of a pixel."""
    data, place, body, header = path.read_bytes(), 8, b"", None
    while place < len(data):
        length, kind = struct.unpack(">I4s", data[place:place + 8])
        content = data[place + 8:place + 8 + length]
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", content)
        elif kind == b"IDAT":
            body += content
        place += length + 12
    width, height, depth, colour, _, _, interlaced = header
    check((depth, interlaced) == (8, 0) and colour in (2, 6), f"{path}: a form that is not read here: {header}")
    step = 3 if colour == 2 else 4
    raw, size, above, rows = zlib.decompress(body), width * step, bytes(width * step), []
    for y in range(height):
        how, line = raw[y * (size + 1)], bytearray(raw[y * (size + 1) + 1:(y + 1) * (size + 1)])
        for x in range(size):
            left, up, corner = (line[x - step], above[x], above[x - step]) if x >= step else (0, above[x], 0)
            if how == 1:
                guess = left
            elif how == 2:
                guess = up
            elif how == 3:
                guess = (left + up) // 2
            elif how == 4:
                guess = min((left, up, corner), key=lambda one: abs(left + up - corner - one))
            else:
                break
            line[x] = (line[x] + guess) & 255
        above = bytes(line)
        rows.append(above)
    return rows, step


def screenshot(profile, url, path, width, height, *options):
    """Takes one that shows something: answers the colour that most of it has."""
    chromium(profile, f"--window-size={width},{height}", f"--screenshot={path}", *options, url)
    rows, step = pixels(path)
    counts = {}
    for row in rows[::4]:
        for x in range(0, len(row), 4 * step):
            colour = row[x:x + 3]
            counts[colour] = counts.get(colour, 0) + 1
    check(len(counts) > 20, f"{path} is blank: it has {len(counts)} colours")
    return max(counts, key=counts.get)


def watch_load(folder, seconds, scratch, screens):
    """Faults for so long: what clients, provider, gateway, Prometheus and the page say at the end is the same."""
    limits = ["--max-body", "4096", "--attempt-timeout", "5", "--patience", "0.5"]
    gateway = Gateway(folder, "--mock-faults", "--mock-speed", "20", *limits)
    names = re.findall(r'^key = "(.*)"', FLEET.read_text(), re.MULTILINE)
    prometheus = Prometheus(scratch, gateway.at["metrics"].removeprefix("http://").removesuffix("/metrics"))
    options = ["--seconds", str(seconds), "--clients", "32", "--too-large", "6000"]
    load = subprocess.Popen(gateway.load_command(folder, gateway.at["provider"], *options), stdout=subprocess.PIPE)
    processes.append(load)

    # While it goes on, the page is alive.
    page, profile = gateway.at["fleet"], scratch / "profile"
    until("the load begins", 60, lambda: gateway.number("gateway_answers_total") > 50)
    first = Page(chromium(profile, "--dump-dom", page))
    same("keys on the page", sorted(first.keys), sorted(names))
    # It has 3 s of its own time, and asks every second: by itself, nobody loads it anew.
    check(first.updates >= 2, f"the page updates itself: {first.updates} times")
    shown = lambda page: sum(key["ok"] for key in page.keys.values())
    check(shown(first) > 0, "the page has numbers")
    light = screenshot(profile, page, screens / "light.png", 1100, 700)
    second = Page(chromium(profile, "--dump-dom", page))
    check(shown(second) > shown(first), f"the page's numbers grow: {shown(first)}, {shown(second)}")
    dark = screenshot(profile, page, screens / "dark.png", 1100, 700, "--force-dark-mode")
    check(sum(light) > 600 and sum(dark) < 150, f"light and dark are what they say: {light.hex()}, {dark.hex()}")
    screenshot(profile, page, screens / "phone.png", 500, 900)

    out, _ = load.communicate(timeout=seconds + 120)
    report = json.loads(out)
    check(load.returncode == 0, f"everybody counts the same: {json.dumps(report['differences'], indent=1)}")
    check(report["compared"] > 60, "a good many numbers were compared")
    clients, provider = report["clients"], report["provider"]
    print(f"{clients['requests']} requests, answers {clients['answers']}, {provider['repeats']} retries")
    for what in ("broken", "left_before", "left_within"):
        check(clients[what] > 0, f"the load was a bad day: no {what}")
    for status in ("200", "400", "413", "502", "503"):
        check(clients["answers"].get(status, 0) > 0, f"the load was a bad day: no {status}")
    for end in ("rate_limited", "failed", "dropped", "cut", "left"):
        check(sum(key[end] for key in provider["keys"].values()) > 0, f"the provider had a bad day: nothing {end}")

    lint = subprocess.run(["promtool", "check", "metrics"], input=gateway.metrics(), text=True, capture_output=True)
    check(lint.returncode == 0, f"promtool: {lint.stdout}{lint.stderr}")

    # Prometheus has seen the end of it two scrapes later.
    answered = sum(clients["answers"].values())
    becomes = lambda what, expected, look: becomes_same(what, 60, expected, look)
    until("Prometheus has seen all", 60, lambda: prometheus.one("sum(gateway_answers_total)") >= answered)
    becomes("answers", clients["answers"], lambda: prometheus.by("sum by (code) (gateway_answers_total)", "code"))
    arrivals = {name: key["arrivals"] for name, key in provider["keys"].items()}
    becomes("attempts", arrivals, lambda: prometheus.by("sum by (key) (gateway_attempts_total)", "key"))
    becomes("retries", provider["repeats"], lambda: prometheus.one("sum(gateway_retries_total)"))
    outcomes = lambda: prometheus.by("leasehold_outcomes_total", "outcome")
    becomes("outcomes ok", clients["complete"], lambda: outcomes().get("ok"))
    becomes("outcomes", sum(arrivals.values()), lambda: sum(outcomes().values()))
    unused = lambda: prometheus.one("sum(leasehold_units_unused_total)")
    acquired = lambda: prometheus.by("leasehold_transitions_total", "kind").get("acquired", 0)
    becomes("leases and attempts", sum(arrivals.values()), lambda: acquired() - unused())
    becomes("leases lent and returned", acquired(),
            lambda: prometheus.by("leasehold_transitions_total", "kind").get("released"))
    scrapes = lambda: prometheus.one("sum(count_over_time(up[1h]))")
    becomes("it was scraped all the time", True, lambda: scrapes() >= seconds // 2)
    becomes("it is scraped", 1, lambda: prometheus.one("sum(up)"))
    rules = lambda: [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    check(len(rules()) > 3, "the alert rules are evaluated")
    for name in [rule["name"] for rule in rules()]:
        becomes(f"alert {name}", {"ok"}, lambda: {rule["health"] for rule in rules() if rule["name"] == name})

    # And so has the page.
    last = Page(chromium(profile, "--dump-dom", page))
    for name, key in provider["keys"].items():
        counts = last.keys[name]
        same(f"{name} on the page", (counts["ok"], counts["rate_limited"]), (key["complete"], key["rate_limited"]))
        check("0 of" in last.texts[name], f"{name} is not in use: {last.texts[name]}")
    print(f"drained in {gateway.end(60):.2f} s at rest; {scrapes()} scrapes")


def end_in_mid_load(folder, seconds, scratch):
    """Told to end while requests are served, with a provider that is a process of its own."""
    provider = Gateway(folder, "--mock-seed", "2")
    names = re.findall(r'^key = "(.*)"', FLEET.read_text(), re.MULTILINE)
    secrets = scratch / "secrets.toml"
    secrets.write_text("".join(f'"{name}" = "sk-mock-{index}"\n' for index, name in enumerate(names)))
    mock = provider.at["provider"]
    gateway = Gateway(folder, "--provider", mock, "--secrets", secrets, "--drain", "20")
    options = ["--seconds", "300", "--clients", "24", "--behave", "--until-end"]
    load = subprocess.Popen(gateway.load_command(folder, mock, *options), stdout=subprocess.PIPE)
    processes.append(load)
    until("requests are served", 60, lambda: gateway.number("gateway_answers_total") > 100)
    until("requests are in flight", 60, lambda: gateway.number("gateway_requests_in_flight") > 4)
    took = gateway.end(seconds)
    out, _ = load.communicate(timeout=60)
    report = json.loads(out)
    clients, keys = report["clients"], report["provider"]["keys"].values()
    check(clients["complete"] > 0, "requests were answered")
    same("broken answers", clients["broken"], 0)
    # A connection that is closed while a request is on its way to it: the client cannot know, and nobody has seen the request.
    served = clients["requests"] - clients["lost"] - clients["nobody"]
    same("requests and answers", served, sum(clients["answers"].values()))
    check(clients["lost"] <= 24, f"requests that met the end of their connection, one for each client at most: {clients['lost']}")
    same("requests lost on a connection that had served nothing yet", clients["lost_new"], 0)
    same("answers to their end", clients["complete"], sum(key["complete"] for key in keys))
    for what in ("left", "cut", "dropped"):
        same(f"requests {what}", sum(key[what] for key in keys), 0)
    check(clients["nobody"] > 0, "the clients have found nobody")
    print(f"drained in {took:.2f} s in mid-load: {clients['complete']} answers, each to its end")
    provider.end(60)


def end_too_late(folder):
    """An answer without an end: it is broken off when time is over, or when the gateway is told twice."""
    for options, times, code in ((("--drain", "1"), 1, 1), (("--drain", "60"), 2, 2)):
        gateway = Gateway(folder, *options)
        request = urllib.request.Request(gateway.at["clients"] + "/v1", headers={"x-mock": "endless"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            check(answer.readline(), "it begins")
            took = gateway.end(55, code, times)
        check(took < 40, f"it ended after {took} s")


processes = []


def main():
    folder, seconds = Path(sys.argv[1]).resolve(), int(sys.argv[2])
    screens = folder / "gateway-screens"
    screens.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        try:
            watch_load(folder, seconds, Path(scratch), screens)
            end_in_mid_load(folder, 60, Path(scratch))
            end_too_late(folder)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()
    print(f"checked {checked}")


main()
