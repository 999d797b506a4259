"""The differential table of the conformance tests, from the results that conformance.sh has left.

conformance_table.py RESULTS DOCUMENT           writes the document, of all runtimes
conformance_table.py RESULTS --some RUNTIME...  prints what differs in a partial run
Exit status 1 where a sub-test passes natively and does anything else remotely.
"""

import collections
import json
import pathlib
import sys

NAMES = {"pocl": "PoCL", "intel-cpu": "Intel CPU runtime", "intel-fpga": "Intel FPGA emulator"}
STATES = ("pass", "fail", "skip", "timeout", "crash", "error")

HEADER = """# Conformance, differentially

Written by `make conformance CTS=DIR`; not by hand. The twelve programs of the Khronos
[OpenCL-CTS](https://github.com/KhronosGroup/OpenCL-CTS) at commit `0353c0bd` run once on the runtime itself and once through
the remote library (`fpga-device-manager exec`: this ICD, a unix socket, shared memory, a device manager over the same
runtime), one process per sub-test. What counts is the difference: **a sub-test that passes natively has to pass remotely.**
That a runtime fails one of its own is its business. Sub-tests that failed may have been run again alone after they were mended;
what was not run is said.
"""


def load(path):
    return json.loads(path.read_text()) if path.exists() else None


def verdict(result):
    """A test that crashed or hung after its verdict has not passed."""
    return "crash" if "bad_exit" in result else result["status"]


def compare(native, remote):
    """(name, native state, remote state) of what differs, the regressions first."""
    different = []
    for name, result in sorted(native["results"].items()):
        before = verdict(result)
        after = verdict(remote["results"][name]) if name in remote["results"] else "error"
        if before != after:
            different.append((name, before, after))
    return sorted(different, key=lambda it: it[1] != "pass")


def restrict(native, remote):
    """Both without what only one of them has run; how many that leaves out."""
    both = native["results"].keys() & remote["results"].keys()
    left_out = native["planned"] - len(both)
    cut = [
        {**results, "results": {name: it for name, it in results["results"].items() if name in both}}
        for results in (native, remote)
    ]
    return *cut, left_out


def section(runtime, native, remote):
    native, remote, left_out = restrict(native, remote)
    counts = collections.defaultdict(lambda: (collections.Counter(), collections.Counter()))
    for index, results in enumerate((native, remote)):
        for name, result in results["results"].items():
            counts[name.split("/")[0]][index][verdict(result)] += 1
            counts["all"][index][verdict(result)] += 1
    different = compare(native, remote)
    regressions = sum(1 for _, before, _ in different if before == "pass")
    lines = [
        f"\n## {NAMES.get(runtime, runtime)}",
        f"\n{len(native['results'])} sub-tests{f' ({left_out} were not run)' if left_out else ''}; "
        f"**{regressions}** pass natively and not remotely.",
        "\npass / fail / skip / timeout / crash:\n",
        "| program | native | remote |",
        "|---|---|---|",
    ]

    def cell(counter):
        values = [counter[state] for state in STATES]
        values[4] += values.pop()
        return "/".join(map(str, values))

    for program in [name for name in counts if name != "all"] + ["all"]:
        lines.append(f"| {program} | " + " | ".join(cell(counter) for counter in counts[program]) + " |")
    if different:
        lines += ["\nWhat differs:\n", "| sub-test | native | remote |", "|---|---|---|"]
        lines += [f"| `{name}` | {before} | {after} |" for name, before, after in different]
    failed = [name for name, result in native["results"].items() if verdict(result) not in ("pass", "skip")]
    if failed:
        lines.append("\nNot passed natively: " + ", ".join(f"`{name}`" for name in sorted(failed)) + ".")
    return "\n".join(lines) + "\n", regressions


def main(arguments):
    results = pathlib.Path(arguments[0])
    if arguments[1] == "--some":
        worst = 0
        for runtime in arguments[2:]:
            pair = [load(results / runtime / f"{kind}-some" / "results.json") for kind in ("native", "remote")]
            for name, before, after in compare(*pair):
                print(f"{runtime}: {name}: {before} natively, {after} remotely")
                worst |= before == "pass"
        return worst
    text, worst = HEADER, 0
    for runtime in NAMES:
        native, remote = (load(results / runtime / kind / "results.json") for kind in ("native", "remote"))
        if native and remote:
            part, regressions = section(runtime, native, remote)
            text += part
            worst |= regressions > 0
    document = pathlib.Path(arguments[1])
    document.parent.mkdir(parents=True, exist_ok=True)
    document.write_text(text)
    print(f"conformance: {document}")
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
