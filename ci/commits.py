#!/usr/bin/env python3
"""Checks commit messages by the rules of CONTRIBUTING.md: `area: Imperative summary` in at most 72 columns, an empty line,
and a body that says why.

`ci/commits.py [RANGE]` checks the commits of a range (default: those that the upstream branch does not have, or the last
one); `ci/commits.py --file FILE` checks one message, as git's `commit-msg` hook does. `make hooks` installs that hook.
"""

import re
import subprocess
import sys

COLUMNS = 72
BODY_COLUMNS = 80
SUBJECT = re.compile(r"^(?P<area>[a-z0-9_.-]+(?:, [a-z0-9_.-]+)*): (?P<summary>\S.*)$")
# A summary that begins with one of these has no verb in front, or not in the imperative.
NOT_IMPERATIVE = re.compile(
    r"^(a|an|the|it|its|they|those|this|that|what|when|where|who|no|not|of|in|on|with|[a-z]+ed|[a-z]+ing|[a-z]+s)\b",
    re.IGNORECASE)
# Verbs that end as a third person or a participle does.
VERBS = {"pass", "address", "process", "focus", "discuss", "access", "compress", "express", "bypass", "cross", "dismiss", "guess",
         "embed", "feed", "need", "seed", "shed", "speed", "proceed", "exceed", "bring", "string", "ping", "ring", "spring"}


def mistakes(message):
    """One sentence per rule that a message breaks."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    found = []
    if subject.startswith(("Merge ", "Revert ", "fixup! ", "squash! ")):
        return found
    if len(subject) > COLUMNS:
        found.append(f"the subject has {len(subject)} columns, {COLUMNS} at most")
    match = SUBJECT.match(subject)
    if not match:
        found.append("the subject is not `area: Summary`, such as `netlink: Walk all routes once`")
    else:
        summary = match["summary"]
        first = summary.split()[0].lower()
        if NOT_IMPERATIVE.match(summary) and first not in VERBS:
            found.append(f'"{summary.split()[0]}" is no imperative: say what the commit does, such as "Walk", "Bound", "Rename"')
        if summary.endswith("."):
            found.append("the subject ends with a full stop")
    if len(lines) > 1 and lines[1].strip():
        found.append("an empty line is missing behind the subject")
    body = [line for line in lines[2:] if line.strip()]
    if not body:
        found.append("the body is missing: say why, and how it was tested")
    found += [f"line {number} has {len(line)} columns, {BODY_COLUMNS} at most" for number, line in enumerate(lines[1:], 2)
              if len(line) > BODY_COLUMNS and "://" not in line]
    return found


def git(*arguments):
    """Standard output of git; `None` if it fails."""
    result = subprocess.run(["git", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return result.stdout if result.returncode == 0 else None


def main(argv):
    if argv[:1] == ["--file"] and len(argv) == 2:
        with open(argv[1]) as file:
            messages = [("this message", file.read())]
    else:
        default = "@{upstream}..HEAD" if git("rev-parse", "--verify", "-q", "@{upstream}") else "-1"
        listed = git("log", "--no-merges", "--format=%h%x00%B%x01", *(argv or [default])) or ""
        messages = [tuple(entry.strip("\n").split("\0", 1)) for entry in listed.split("\x01") if entry.strip()]
    wrong = 0
    for name, message in messages:
        for mistake in mistakes(message):
            print(f"commits: {name}: {mistake}", file=sys.stderr)
            wrong += 1
    if not wrong:
        print(f"commits: {len(messages)} messages are as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
