"""Everything that the rules, their tests, the dashboard and the tables say of metrics is so: names, labels, and values of labels.

    observability_names.py METRICS FOLDER

METRICS is what the collectors write; FOLDER has alerts.yml, alerts_test.yml, dashboard.json and README.md. A selector that no sample can
match is no error to Prometheus, which answers nothing: a rule with a typing error never fires, and a panel stays empty.
"""

import json
import re
import sys
from pathlib import Path

# What Prometheus adds to each sample of a target.
ADDED = {"job", "instance"}
METRIC = r"leasehold_[a-z_]+"
# A value may have a template in it, which has braces of its own.
SELECTOR = re.compile(rf"\b({METRIC})(?:\{{((?:[^{{}}]|\{{\{{[^}}]*\}}\}})*)\}})?")
LABEL = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")

counted = 0


def written(text):
    """Of each metric, of each of its labels, the values."""
    metrics = {}
    for line in text.splitlines():
        found = re.match(rf"({METRIC})(?:\{{(.*)\}})? \S+$", line)
        if found:
            labels = metrics.setdefault(found[1], {})
            for label, _, value in LABEL.findall(found[2] or ""):
                labels.setdefault(label, set()).add(value)
    return metrics


def faults(metrics, text, legend=""):
    """What is wrong with an expression, or with a text that has some; and with the labels that a legend or an annotation shows of it."""
    global counted
    wrong, known = [], set(ADDED)
    for name, selector in SELECTOR.findall(text):
        counted += 1
        if name not in metrics:
            wrong.append(f"{name} is not written")
            continue
        labels = metrics[name]
        known |= labels.keys()
        if selector and not LABEL.search(selector):
            # Of a table: the labels' names.
            matchers = [(label.strip(), "", "") for label in selector.split(",")]
        else:
            matchers = LABEL.findall(selector)
            if LABEL.sub("", selector).strip(" ,"):
                wrong.append(f"{name}{{{selector}}} cannot be read")
        for label, how, value in matchers:
            counted += 1
            if label in ADDED:
                continue
            if label not in labels:
                wrong.append(f"{name} has no label {label}")
            elif how and "$" not in value:
                for one in value.split("|") if how.endswith("~") else [re.escape(value)]:
                    if not any(re.fullmatch(one, there) for there in labels[label]):
                        wrong.append(f"{name} has no {label}={one}: there are {sorted(labels[label])}")
    shown = [label.strip() for labels in GROUPING.findall(text) for label in labels.split(",") if label.strip()]
    shown += re.findall(r"\{\{\s*(\w+)\s*\}\}", legend) + re.findall(r"\$labels\.(\w+)", legend)
    for label in shown:
        counted += 1
        if label not in known:
            wrong.append(f"no label {label} in {' '.join(text.split())}")
    return wrong


def faults_of_dashboard(metrics, dashboard):
    wrong = []
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            wrong += faults(metrics, target["expr"], target["legendFormat"])
    for variable in dashboard["templating"]["list"]:
        asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable.get("definition", ""))
        if asked:
            wrong += faults(metrics, f"{asked[1]}{{{asked[2]}}}")
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    asked = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard))) - {"__rate_interval"}
    wrong += [f"the dashboard has no variable {name}" for name in asked - variables]
    # A family of which no panel shows anything is one that nobody sees.
    shown = {name for panel in dashboard["panels"] for target in panel["targets"]
             for name, _ in SELECTOR.findall(target["expr"])}
    wrong += [f"no panel shows {name}" for name in sorted(families(metrics)) if not samples_of(name) & shown]
    return wrong


def families(metrics):
    """The names by which families are described: a histogram's samples have others."""
    histograms = {name.removesuffix("_bucket") for name in metrics if name.endswith("_bucket")}
    return metrics.keys() - {sample for name in histograms for sample in samples_of(name) - {name}} | histograms


def samples_of(family):
    return {family} | {f"{family}_{part}" for part in ("bucket", "sum", "count")}


def untested(rules, tests):
    """Alerts that the tests do not see firing and silent."""
    alerts = re.findall(r"- alert: (\w+)", rules)
    wrong = [] if len(alerts) == len(set(alerts)) > 3 else ["no rules, or two of one name"]
    for alert in alerts:
        # In one line, or with what is expected in the lines below.
        seen = re.findall(rf"alertname: {alert}\b,? *\n? *exp_alerts:( \[\])?", tests)
        if "" not in seen:
            wrong.append(f"no test sees {alert} fire")
        if " []" not in seen:
            wrong.append(f"no test sees {alert} silent")
    return wrong


def see_that_it_finds(metrics):
    """A check that cannot fail checks nothing."""
    good = 'sum by (scheduler, how) (rate(leasehold_waits_ended_total{scheduler=~"$scheduler",how=~"timed_out|failed"}[5m]))'
    assert not faults(metrics, good, "{{scheduler}} {{how}}"), faults(metrics, good)
    for right, mistaken in (
        ("leasehold_waits_ended_total", "leasehold_wait_ended_total"),
        ("timed_out|failed", "timedout|failed"),
        ("timed_out|failed", "timed_out|fail"),
        ('how=~"timed_out|failed"', 'how="time_out"'),
        ('how=~"timed_out|failed"', 'how!="time_out"'),
        ('how=~"timed_out|failed"', 'why=~"timed_out|failed"'),
        ("by (scheduler, how)", "by (scheduler, why)"),
    ):
        assert right in good
        assert faults(metrics, good.replace(right, mistaken)), f"{mistaken} is not found to be wrong"
    assert faults(metrics, good, "{{scheduler}} {{reason}}"), "a legend's label is not looked at"
    assert faults(metrics, 'leasehold_holds{reason="exclude"}'), "a wrong reason is not found"
    assert faults(metrics, "leasehold_holds{reasons}"), "a wrong label of a table is not found"
    rules = "".join(f"- alert: {name}\n" for name in "ABCD")
    tests = "".join(f"alertname: {name}, exp_alerts: []}}\n alertname: {name}\n  exp_alerts:\n" for name in "ABCD")
    assert not untested(rules, tests), untested(rules, tests)
    assert untested(rules, tests.replace("C, exp_alerts: []", "C, exp_alerts:")), "an alert never seen silent is not found"
    assert untested(rules, tests.replace("D\n", "E\n")), "an alert never seen to fire is not found"


def main():
    metrics = written(Path(sys.argv[1]).read_text())
    folder = Path(sys.argv[2])
    see_that_it_finds(metrics)
    wrong = faults_of_dashboard(metrics, json.loads((folder / "dashboard.json").read_text()))
    # Quotes within quotes.
    rules = (folder / "alerts.yml").read_text().replace('\\"', '"').split("- alert: ")[1:]
    assert len(rules) > 3, "no rules"
    for rule in rules:
        wrong += faults(metrics, rule, rule)
    tests = (folder / "alerts_test.yml").read_text()
    wrong += faults(metrics, tests)
    wrong += untested((folder / "alerts.yml").read_text(), tests)
    readme = (folder / "README.md").read_text()
    known = {name: metrics.get(name, metrics.get(f"{name}_bucket")) for name in families(metrics)}
    tables = "\n".join(line for line in readme.splitlines() if line.startswith("| `"))
    described = {name for name, _ in SELECTOR.findall(tables)}
    wrong += faults(known, tables)
    wrong += [f"{name} is not described" for name in known if name not in described]
    alerts = {rule.split(maxsplit=1)[0] for rule in rules}
    told = set(re.findall(r"^\| `(Leasehold\w+)` \|", readme, re.M))
    wrong += [f"{name} is an alert without a line in the table, or the reverse" for name in sorted(alerts ^ told)]
    if wrong:
        sys.exit("FAILED:\n" + "\n".join(wrong))
    assert len(described) > 20 and counted > 150, (len(described), counted)
    print(f"checked {counted} names of {len(metrics)} metrics, labels and values")


main()
