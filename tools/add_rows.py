#!/usr/bin/env python3
"""Measures cases and adds the rows to a file of measurements, as `headroom check FILE` reads them.

  tools/add_rows.py CASES.json FILE.json

Runs over the null device of tools/null_device, whose README says how it is set up (HARNESS names another folder, HARNESS_PYTHON
another Python).

CASES: an array of cases as measure.py and more_switches.py take them, with "stack": "trl" or "task": "classify" as trl_steps.py does, with "task": "embed" as
       embedding_steps.py does, with "evaluation" as evaluation_steps.py does, with "stack": "unsloth" and a "task" as unsloth_trainers.py does (a file for each such stack, whose versions differ), or with "task": "generate" as
       generate_steps.py does, each with an "id";
       "cc" is the compute capability, 8.0 where it is left out.
FILE:  the rows that it holds already stay as they are and are not measured again.
"""
import json
import os
import subprocess
import sys
import tempfile

import draw_ranks
import draw_steps
import harness


def measured(cases):
    """The rows of cases, or why there is none of one."""
    of_trl = [case for case in cases if case.get("stack") == "trl" or case.get("evaluation") or case.get("task") in ("classify", "embed") or case.get("stack") == "unsloth" and "task" in case]
    generating = [case for case in cases if case.get("task") == "generate"]
    yield from draw_steps.measured([case for case in cases if case not in of_trl + generating], 1)
    yield from map(generated, generating)
    others = {"llamafactory" for case in of_trl if case.get("loss") == "log-softmax"}
    others |= {"deepspeed" for case in of_trl if (case.get("engine") or "").startswith("zero")}
    others |= {"sentence-transformers" for case in of_trl if case.get("task") == "embed"}
    others |= {name for case in of_trl if case["stack"] == "unsloth" for name in ("unsloth", "unsloth_zoo")}
    versions = draw_ranks.versions(*sorted(others)) if of_trl else None
    sys.path.insert(0, harness.FOLDER)
    for case in of_trl:
        import presets
        if case.get("preset"):
            case = dict(case, config=dict(presets.P[case["preset"]]))
        # a head that is another than a text model's belongs to the case
        yield draw_ranks.measured("trl", {key: value for key, value in case.items() if (key, value) != ("head", "causal")}, versions)


def generated(case):
    """The row of a case of generate_steps.py, or why there is none."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "generate_steps.py")
    cc = case.pop("cc")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(case, file)
        file.flush()
        done = subprocess.run([harness.PYTHON, program, file.name], capture_output=True, text=True, env=draw_steps.environment(cc))
    if done.returncode:
        return {"id": case["id"], "error": done.stderr[-300:]}
    measured = json.loads(done.stdout.splitlines()[-1])
    versions, own = measured.pop("versions"), {key: value for key, value in case.items() if key != "id"}
    return {"id": case["id"], "source": "null-device", "versions": versions, "device": {"cc": cc}, "case": own, "measured": measured}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    cases, path = sys.argv[1:]
    text = open(path).read() if os.path.exists(path) else "[\n]\n"
    known = {row["id"] for row in json.loads(text)}
    wanted = [dict({"cc": "8.0", "head": "causal"}, **case) for case in json.load(open(cases)) if case["id"] not in known]
    order = [case["id"] for case in wanted]
    rows = {}
    for result in measured(wanted):
        if "measured" in result:
            rows[result["id"]] = json.dumps(result, separators=(",", ":"))
        else:
            print(result["id"], result["error"][:300], flush=True)
    added = [rows[name] for name in order if name in rows]
    if added:
        before = text.rstrip().removesuffix("]").rstrip()
        with open(path, "w") as file:
            file.write(before + ("\n" if before == "[" else ",\n") + ",\n".join(added) + "\n]\n")
    print(len(added), "rows added to", path)


if __name__ == "__main__":
    main()
