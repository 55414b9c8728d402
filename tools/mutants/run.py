"""Mutation testing of a folder of the library in hours and not weeks: all changes are compiled at once, each behind a switch.

    tools/mutants/run.py SCRATCH [FOLDER]        FOLDER is src/step by default

First the measured rows are run under each change, then the tests of the library under those that no row notices. SCRATCH gets a changed
copy of the repository (`copy/`), the changes (`changes.tsv`: number, place, function, what), what each measured row comes to and meets
(`baseline-N.jsonl`), what became of each change (`found-N.txt`, `tests.txt`), and those that nothing noticed (`survived.tsv`). It goes on
where it was stopped.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PARTS = os.cpu_count() or 1
COPIED = ["Cargo.toml", "Cargo.lock", "build.rs", "build", "src", "data", "packages", "examples", "benches", "tests", "docs", "README.md", "rust-toolchain.toml"]
# rows at most, and the slowest in microseconds, of each pass over what is left: the last is for what slow rows alone meet
PASSES = [(15, 150_000), (60, 500_000), (3, 60_000_000)]
# the tests that state of the folder what no row can, the quickest first: of the library's own those of its module
TESTS = ["lib", "job", "params", "checkpoints", "formulas"]
# a number that no change has
NO_CHANGE = 999_999
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


def binaries(scratch: Path, folder: str) -> list[list[str]]:
    """How the tests are run that were built of the copy."""
    chosen = ["--lib", *(word for name in TESTS[1:] for word in ("--test", name))]
    built = cargo(scratch, "test", "--profile", "test", "--no-default-features", "--no-run", "--message-format=json", *chosen)
    if built.returncode:
        sys.exit(built.stderr[-3000:])
    made = [json.loads(line) for line in built.stdout.splitlines()]
    made = {one["target"]["name"]: one["executable"] for one in made if one.get("executable")}
    module = folder.removeprefix("src/").replace("/", "::") + "::"
    return [[made["headroom"], module] if name == "lib" else [made[name]] for name in TESTS]


def passes(scratch: Path, command: list[str], change: int, limit: float) -> bool:
    """Whether tests pass under a change."""
    env = dict(os.environ, MUTANT=str(change), RUST_TEST_THREADS="1")
    try:
        run = subprocess.run([*command, "--quiet"], cwd=scratch / "copy", env=env, capture_output=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return False
    return run.returncode == 0


def by_tests(scratch: Path, folder: str, changes: list[int]) -> None:
    """Runs the tests under each change until one fails."""
    log = scratch / "tests.txt"
    known = {int(line.split()[0]) for line in log.read_text().splitlines()} if log.exists() else set()
    limits = []
    commands = binaries(scratch, folder)
    for command in commands:
        began = time.monotonic()
        if not passes(scratch, command, NO_CHANGE, 3600):
            sys.exit(f"{command} fails without a change")
        limits.append(60 + 20 * (time.monotonic() - began))

    def run(change: int) -> None:
        failed = (name for name, command, limit in zip(TESTS, commands, limits) if not passes(scratch, command, change, limit))
        with log.open("a") as out:
            out.write(f"{change} {next(failed, 'survived')}\n")

    with ThreadPoolExecutor(PARTS) as pool:
        list(pool.map(run, (change for change in changes if change not in known)))


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
    known = found(scratch)
    by_tests(scratch, folder, [one for one in changes if known.get(one, "survived").startswith("survived")])
    words = dict(line.split() for line in (scratch / "tests.txt").read_text().splitlines())
    print("by tests:", {word: list(words.values()).count(word) for word in sorted(set(words.values()))})
    left = [line for line in (scratch / "changes.tsv").open() if words.get(line.split("\t")[0]) == "survived"]
    (scratch / "survived.tsv").write_text("".join(left))


main()
