"""Man pages, made from the help that the program prints, so that they say the same."""

import re
import subprocess
from datetime import datetime, timezone

COMMANDS = ("Commands:", "Subcommands:")


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha")
    return re.sub(r"^\.", "\\&.", text, flags=re.M)


def items_of(paragraph):
    """(term, description) of a paragraph's lines: "  --flag VALUE" with its description below, or "  command   description"."""
    heading, *lines = paragraph.split("\n")
    items = []
    for line in lines:
        if not re.match(r"  \S", line):
            items[-1][1].append(line.strip())
        elif heading in COMMANDS:
            term, description = line.split(maxsplit=1)
            items.append((term, [description]))
        else:
            items.append((line.strip(), []))
    return [(term, " ".join(description)) for term, description in items]


def page_of(command, help_text, version, date):
    """The page of `command`, a tuple of words, in the man macros."""
    description, usage, *paragraphs = help_text.strip("\n").split("\n\n")
    name = "-".join(command)
    page = [f'.TH {name.upper()} 1 {date} "quire {version}" "User Commands"', ".SH NAME"]
    page += [f"{escaped(name)} \\- {escaped(' '.join(description.split()))}", ".SH SYNOPSIS", escaped(usage.removeprefix("Usage: "))]
    for paragraph in paragraphs:
        heading, *lines = paragraph.split("\n")
        if heading.endswith(":") and all(line.startswith("  ") for line in lines):
            page.append(f".SH {escaped(heading[:-1].upper())}")
            for term, text in items_of(paragraph):
                page += [".TP", f"\\fB{escaped(term)}\\fR", escaped(text)]
        elif any(line.startswith(" ") for line in paragraph.split("\n")):  # examples
            page += [".SH EXAMPLES", ".nf", escaped(paragraph), ".fi"]
        else:
            page += [".SH NOTES", escaped(paragraph)]
    return "\n".join(page) + "\n"


def man_pages(program, version, epoch, command=("quire",)):
    """{file name: text} of the pages of the program's command and of all commands below it."""
    done = subprocess.run([program, *command[1:], "--help"], capture_output=True, text=True, check=True)
    date = datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%d")
    pages = {"-".join(command) + ".1": page_of(command, done.stdout, version, date)}
    for paragraph in done.stdout.split("\n\n"):
        if paragraph.startswith(COMMANDS):
            for name, _ in items_of(paragraph.strip("\n")):
                pages |= man_pages(program, version, epoch, (*command, name))
    return pages
