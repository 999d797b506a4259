#!/usr/bin/env python3
"""Prints the slowest tests and the number of tests of each rung that ran, by the runner's JUnit reports.

    hack/slowest.py [COUNT]
"""
import glob
import os
import sys
import xml.etree.ElementTree as ET

count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
tests = []
for report in sorted(glob.glob("target/nextest/*/junit.xml")):
    rung = os.path.basename(os.path.dirname(report))
    for suite in ET.parse(report).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            tests.append((float(case.get("time", 0)), rung, f"{suite.get('name')} {case.get('name')}"))
print(f"the {count} slowest of {len(tests)} tests, in seconds:")
for seconds, rung, name in sorted(tests, reverse=True)[:count]:
    print(f"  {seconds:7.1f}  {rung:13}  {name}")
