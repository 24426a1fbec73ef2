# SPDX-License-Identifier: MIT
"""log-lines.py MANUALS LOG...: each line is what tasuki-log(5), in this folder, says of it, with no key
beside; print what the manual names and no line has, as EVENT.KEY, or EVENT.KEY.KEY within."""
import json
import os
import re
import sys

STEP = "Steps"


def words(text):
    return {word for line in re.findall(r"^\.Li (.*)$", text, re.M) for word in re.findall(r"\w+", line)}


class Item:
    """What a list of the manual says of a key."""

    def __init__(self, body):
        self.like = re.findall(r"[Aa]s in\n\.Li (\w+)", body)
        self.without = set(re.findall(r"without\n\.Li (\w+)", body))
        self.keys = words(body) - set(self.like) - self.without
        self.pages = re.findall(r"^\.Xr (\S+) 5", body, re.M)
        self.constants = re.findall(r"^\.Dq (\S+)$", body, re.M)


def events(text):
    """The keys of each event, as items."""
    found = {}
    for section in re.split(r"^\.Ss ", text.split("\n.Sh EXAMPLES")[0], flags=re.M)[1:]:
        name, _, body = section.partition("\n")
        found[name] = {}
        for part in re.split(r"^\.It Li ", body.split("\n.El")[0], flags=re.M)[1:]:
            keys, _, said = part.partition("\n")
            item = Item(said)
            found[name].update((key, item) for key in re.findall(r"\w+", keys))
    return found


class Manual:
    def __init__(self, folder):
        self.folder = folder
        self.events = events(self.page("tasuki-log"))
        self.seen = set()

    def page(self, name):
        with open(os.path.join(self.folder, name + ".5")) as file:
            return file.read()

    def within(self, event, key):
        """Keys of an object that is the value, and whether the page of another file has them."""
        item = self.events[event][key]
        keys = set(item.keys)
        for other in item.like:
            keys |= self.within(other, key)[0]
        for page in item.pages:
            keys |= words(self.page(page).replace(".It Li", ".Li"))
        return keys - item.without, bool(item.pages)

    def look_within(self, event, key, value):
        if isinstance(value, list):
            for one in value:
                self.look_within(event, key, one)
        elif isinstance(value, dict):
            keys, far = self.within(event, key)
            for name, inner in value.items():
                assert name in keys, f"{event}: {key} has {name}"
                self.seen.add((event, key, name))
                if far:
                    self.look_within(event, key, inner)

    def look(self, line):
        event = line.pop("event", STEP)
        assert event in self.events, f"event {event}"
        for key, value in line.items():
            assert key in self.events[event], f"{event} has {key}"
            self.seen.add((event, key))
            self.look_within(event, key, value)
        return event

    def unseen(self):
        for event, keys in self.events.items():
            for key in keys:
                if (event, key) not in self.seen:
                    yield f"{event}.{key}"
                elif any(s[:2] == (event, key) and len(s) == 3 for s in self.seen):
                    inner, far = self.within(event, key)
                    yield from (f"{event}.{key}.{name}" for name in sorted(inner)
                                if not far and (event, key, name) not in self.seen)


def no_number(text):
    raise ValueError(f"{text} is no JSON")


def only_once(pairs):
    assert len(dict(pairs)) == len(pairs), "a key comes twice"
    return dict(pairs)


def check(manual, path):
    """A start, of this schema, comes before all but trials."""
    schema = manual.events["start"]["schema"].constants
    started = False
    with open(path, encoding="utf-8") as file:
        for number, text in enumerate(file, 1):
            try:
                assert text.endswith("}\n"), "is not whole"
                line = json.loads(text, parse_constant=no_number, object_pairs_hook=only_once)
                if line.get("event") == "start":
                    assert [line["schema"]] == schema and line["version"] == 1, "another schema"
                    started = True
                assert started or line["event"] == "trial", "comes before the start"
                manual.look(line)
            except (AssertionError, ValueError) as error:
                sys.exit(f"{path}:{number}: {error}: {text[:200]}")
    assert started, f"{path}: no start"


def main():
    manual = Manual(sys.argv[1])
    for path in sys.argv[2:]:
        check(manual, path)
    print("\n".join(manual.unseen()))


main()
