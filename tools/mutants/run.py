"""Mutation testing of a folder of the library in hours and not weeks: all changes are compiled at once, each behind a switch.

    tools/mutants/run.py SCRATCH [FOLDER]        FOLDER is src/step by default

SCRATCH gets a changed copy of the repository (`copy/`), the changes (`changes.tsv`: number, place, function, what), what each measured
row comes to and meets (`baseline-N.jsonl`), and what became of each change (`found-N.txt`). It goes on where it was stopped.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PARTS = os.cpu_count() or 1
COPIED = ["Cargo.toml", "Cargo.lock", "build.rs", "build", "src", "data", "packages", "examples", "benches", "tests", "docs", "README.md", "rust-toolchain.toml", "tools/published"]
# rows at most, and the slowest in microseconds, of each pass over what is left
PASSES = [(15, 150_000), (60, 500_000), (400, 5_000_000)]
FLAGS = "-Awarnings -Aarithmetic_overflow -Aunconditional_panic"


def cargo(scratch: Path, *arguments: str) -> subprocess.CompletedProcess:
    env = dict(os.environ, CARGO_TARGET_DIR=str(scratch / "target"), RUSTFLAGS=FLAGS)
    return subprocess.run(["cargo", *arguments], cwd=scratch / "copy", env=env, capture_output=True, text=True)


def rewrite(scratch: Path, folder: str) -> None:
    """Writes all changes, and leaves those out that do not compile."""
    subprocess.run(["cargo", "build", "--release", "--quiet", "--manifest-path", HERE / "Cargo.toml", "--target-dir", scratch / "tool"], check=True)
    left_out = scratch / "left-out.txt"
    left_out.touch()
    while True:
        subprocess.run([scratch / "tool/release/mutants", ROOT, scratch / "copy", folder, left_out, scratch / "changes.tsv"], check=True)
        checked = cargo(scratch, "check", "--lib", "--no-default-features", "--message-format=json")
        if checked.returncode == 0:
            return
        wrong = {number for line in checked.stdout.splitlines() for number in changes_of_error(scratch, json.loads(line))}
        if not wrong:
            sys.exit(checked.stderr[-3000:])
        with left_out.open("a") as out:
            out.write("".join(f"{number}\n" for number in sorted(wrong)))


def changes_of_error(scratch: Path, message: dict) -> list[int]:
    """The change that an error of the compiler stands in: the last that is asked for before it, or the one inside."""
    if message.get("reason") != "compiler-message" or message["message"]["level"] != "error":
        return []
    for span in message["message"]["spans"]:
        text = (scratch / "copy" / span["file_name"]).read_bytes()
        start, end = span["byte_start"], span["byte_end"]
        numbers = [int(number) for number in re.findall(rb"crate::mutant\((\d+)\)", text[start:end])]
        before = [int(number) for number in re.findall(rb"crate::mutant\((\d+)\)", text[max(0, start - 400):start])]
        if len(numbers) == 1 or before:
            return numbers if len(numbers) == 1 else before[-1:]
    return []


def in_parts(scratch: Path, *arguments: str) -> list[int]:
    """Runs the rows on all processors, each with its part; how each ended."""
    runner = scratch / "target/debug/examples/rows"
    run = lambda part: [runner, *(word.replace("PART", str(part)) for word in arguments)]
    running = [subprocess.Popen(run(part), cwd=scratch / "copy") for part in range(PARTS)]
    return [one.wait() for one in running]


def found(scratch: Path) -> dict[int, str]:
    """What became of each change so far; one that was begun and no more took the process with it."""
    all_found = {}
    for part in range(PARTS):
        path = scratch / f"found-{part}.txt"
        begun = None
        for line in path.read_text().splitlines() if path.exists() else []:
            first, rest = line.split(" ", 1)
            if begun is not None and first == "begin":
                all_found[begun] = "crashed"
            begun = int(rest) if first == "begin" else None
            if first != "begin" and not all_found.get(int(first), "survived").startswith(("noticed", "panicked", "crashed")):
                all_found[int(first)] = rest
        if begun is not None:
            all_found[begun] = "crashed"
    return all_found


def main() -> None:
    scratch = Path(sys.argv[1]).resolve()
    folder = sys.argv[2] if len(sys.argv) > 2 else "src/step"
    copy = scratch / "copy"
    if not copy.exists():
        for name in COPIED:
            source, target = ROOT / name, copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
        with (copy / "src/lib.rs").open("a") as library:
            library.write((HERE / "switch.rs").read_text())
        shutil.copy(HERE / "rows.rs", copy / "examples/rows.rs")
        rewrite(scratch, folder)
    built = cargo(scratch, "build", "--profile", "test", "--no-default-features", "--example", "rows")
    if built.returncode:
        sys.exit(built.stderr[-3000:])
    bases = [scratch / f"baseline-{part}.jsonl" for part in range(PARTS)]
    if not all(base.exists() for base in bases):
        in_parts(scratch, "baseline", str(scratch / "baseline-PART.jsonl"), "PART", str(PARTS))
    met = {number for base in bases for line in base.open() for number in json.loads(line)["met"]}
    changes = [int(line.split("\t")[0]) for line in (scratch / "changes.tsv").open()]
    print(f"{len(changes)} changes, {len(met)} of them met by a measured row")
    todo = scratch / "todo.txt"
    for number, (most, slowest) in enumerate(PASSES):
        tried = set()
        while True:
            known = found(scratch)
            rest = [one for one in changes if one in met and one not in tried and known.get(one, "survived").startswith("survived")]
            if number == 0:
                rest = [one for one in rest if one not in known]
            todo.write_text("\n".join(map(str, rest)))
            # one that takes its process with it ends the part: the others go on without it
            if not any(in_parts(scratch, "run", str(scratch / "found-PART.txt"), "PART", str(PARTS), str(most), str(slowest), str(todo), *map(str, bases))):
                break
            tried |= set(found(scratch)) & set(rest)
        verdicts = [verdict.split()[0] for verdict in found(scratch).values()]
        print(f"after {most} rows each:", {word: verdicts.count(word) for word in sorted(set(verdicts))}, flush=True)


main()
