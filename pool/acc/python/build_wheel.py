"""Makes the wheel, with Python's standard library alone: the package and the shared library in an archive.

FPGA_ACC_LIBRARY is the path of libfpga_acc.so, FPGA_ACC_GLIBC the oldest glibc that the library needs (that of this machine, if
it says nothing). pip calls `build_wheel` (PEP 517); `python3 build_wheel.py FOLDER` does the same without pip.
"""

import base64
import hashlib
import os
import platform
import re
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SUMMARY = "Runs accelerators on any board of a pool"


def _version():
    workspace = (HERE / "../../../Cargo.toml").read_text()
    return re.search(r'^\[workspace\.package\]\nversion = "(.*)"', workspace, re.MULTILINE)[1]


def _platform():
    # Without a word the library needs the glibc of the machine that it was built on, and no newer one.
    glibc = os.environ.get("FPGA_ACC_GLIBC") or platform.libc_ver()[1]
    major, minor = glibc.split(".")[:2]
    return f"manylinux_{major}_{minor}_{platform.machine()}"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    version = _version()
    tag = f"py3-none-{_platform()}"
    info = f"fpga_acc-{version}.dist-info"
    library = Path(os.environ.get("FPGA_ACC_LIBRARY", HERE / "../../../target/release/libfpga_acc.so"))
    files = {f"fpga_acc/{path.name}": path.read_bytes() for path in sorted((HERE / "fpga_acc").glob("*.py"))}
    files["fpga_acc/libfpga_acc.so.0"] = library.read_bytes()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: fpga-acc\nVersion: {version}\nSummary: {SUMMARY}\n"
        "License: Apache-2.0\nRequires-Python: >=3.10\n"
    ).encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: build_wheel\nRoot-Is-Purelib: false\nTag: {tag}\n"
    ).encode()
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in files.items()
    )
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    name = f"fpga_acc-{version}-{tag}.whl"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            # A fixed time, so that the same files make the same wheel.
            entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            wheel.writestr(entry, data)
    return name


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    print(Path(sys.argv[1]) / build_wheel(sys.argv[1]))
