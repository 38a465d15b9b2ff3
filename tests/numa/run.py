#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""guest.c on a machine with several nodes, which qemu emulates: tests/numa/run.py BUILD

Boots a kernel of Debian's with init.c, guest.c and the libraries that they need as its files, and shows what they print. The kernel is
one of /boot that can be read and knows nodes; else a package is fetched into BUILD/numa and unpacked there, not installed.

    node 0      CPUs 0 and 1, memory
    node 1      CPUs 2 and 3, memory
    node 2      memory alone

Always emulated, never through /dev/kvm, which in a machine that is virtual itself may be there and take minutes.
Prints "ok NAME", "FAIL NAME" or "skip NAME: reason" for each, then "N passed, M failed".
"""
import gzip
import os
import pathlib
import platform
import re
import shutil
import stat
import subprocess
import sys

QEMU = "qemu-system-x86_64"
PACKAGE = "linux-image-cloud-amd64"  # depends on the newest
LIMIT = 240  # seconds that the guest may take: many times what it needs where nobody else computes
FETCH_LIMIT = 120
MACHINE = ["-accel", "tcg,thread=multi", "-smp", "4,sockets=2,cores=2,threads=1", "-m", "512",
           "-object", "memory-backend-ram,id=m0,size=192M", "-object", "memory-backend-ram,id=m1,size=192M",
           "-object", "memory-backend-ram,id=m2,size=128M",
           "-numa", "node,nodeid=0,cpus=0-1,memdev=m0", "-numa", "node,nodeid=1,cpus=2-3,memdev=m1",
           "-numa", "node,nodeid=2,memdev=m2", "-numa", "dist,src=0,dst=1,val=21",
           "-numa", "dist,src=0,dst=2,val=15", "-numa", "dist,src=1,dst=2,val=31",
           "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"]
COMMAND_LINE = "console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off rdinit=/init"


class Skip(Exception):
    pass


def output_of(command, limit=FETCH_LIMIT, cwd=None):
    """Its standard output, or None."""
    try:
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=limit, cwd=cwd)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


# ---- the kernel ------------------------------------------------------------------------------------------------------

def knows_nodes(kernel):
    config = kernel.with_name(kernel.name.replace("vmlinuz", "config", 1))
    return os.access(kernel, os.R_OK) and os.access(config, os.R_OK) and \
        {"CONFIG_NUMA=y", "CONFIG_ACPI_NUMA=y"} <= set(config.read_text().split("\n"))


def kernel_in(folder):
    return next(filter(knows_nodes, sorted(folder.glob("vmlinuz-*"), reverse=True)), None)


def fetch_kernel(folder):
    """Into folder/boot. The package that has no version in its name has no kernel, but names the one that has."""
    depends = output_of(["apt-cache", "depends", PACKAGE]) or ""
    if not (name := re.search(r"Depends: (linux-image-\S+)", depends)):
        raise Skip(f"no kernel in /boot, and no package {PACKAGE}")
    if output_of(["apt-get", "download", name[1]], cwd=folder) is None:
        raise Skip(f"no kernel in /boot, and {name[1]} cannot be fetched")
    for package in folder.glob("linux-image-*.deb"):
        output_of(["dpkg", "-x", package, folder])
        package.unlink()
    shutil.rmtree(folder / "lib", ignore_errors=True)  # modules, which the guest does without


def find_kernel(folder):
    kernel = kernel_in(pathlib.Path("/boot")) or kernel_in(folder / "boot")
    if kernel is None:
        fetch_kernel(folder)
        kernel = kernel_in(folder / "boot")
    if kernel is None:
        raise Skip("the kernel does not know nodes")
    return kernel


# ---- its files -------------------------------------------------------------------------------------------------------

def libraries(program):
    """What it is linked with, by the paths that it looks at."""
    return re.findall(r"(/\S+) \(0x", output_of(["ldd", program]) or "")


def entry(number, name, mode, data=b""):
    """A file in an archive of cpio's format `newc`, which kernels unpack: names end in a zero, all is padded to words."""
    path = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + path
    return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)


def archive(files):
    """Of {path in the guest: path here}, and the folders that these are in."""
    folders = sorted({str(parent) for path in files for parent in pathlib.Path(path).parents} - {"/"})
    entries = [(name, stat.S_IFDIR | 0o755, b"") for name in folders]
    entries += [(name, stat.S_IFREG | 0o755, pathlib.Path(source).read_bytes()) for name, source in files.items()]
    entries += [("TRAILER!!!", 0, b"")]
    return b"".join(entry(i, name.lstrip("/"), mode, data) for i, (name, mode, data) in enumerate(entries))


def make_files(build, folder):
    programs = {"/init": build / "tests" / "numa_init", "/guest": build / "tests" / "numa_guest"}
    for program in programs.values():
        if not program.exists():
            raise Skip(f"{program.name} is not built")
    files = {**{path: path for program in programs.values() for path in libraries(program)}, **programs}
    made = folder / "files.cpio.gz"
    made.write_bytes(gzip.compress(archive(files), 1))
    return made


# ---- the guest -------------------------------------------------------------------------------------------------------

def boot(kernel, files):
    """What it prints, up to its time limit."""
    command = [QEMU, *MACHINE, "-kernel", str(kernel), "-initrd", str(files), "-append", COMMAND_LINE]
    try:
        said = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=LIMIT).stdout
    except subprocess.TimeoutExpired as error:
        said = (error.output or b"") + b"\nthe guest takes too long\n"
    return said.decode(errors="replace").replace("\r", "")


def run(build):
    if platform.machine() != "x86_64":
        raise Skip("the guest is an x86-64")
    if not shutil.which(QEMU):
        raise Skip(f"there is no {QEMU} here (tools/setup.sh numa installs it)")
    folder = build / "numa"
    folder.mkdir(parents=True, exist_ok=True)
    said = boot(find_kernel(folder), make_files(build, folder))
    closing = re.search(r"^(\d+) passed, (\d+) failed$", said, re.M)
    print(said.strip() if closing is None else said[:closing.start()].strip())
    if closing is None:
        passed = len(re.findall(r"^ok \S+$", said, re.M))
        failed = len(re.findall(r"^FAIL \S+$", said, re.M)) + 1
        print("FAIL numa_guest: it did not get to its end")
        print(f"{passed} passed, {failed} failed")
        return 1
    print(closing[0])
    return int(closing[2]) != 0


def main():
    try:
        return run(pathlib.Path(sys.argv[1]).resolve())
    except Skip as reason:
        print(f"skip numa_guest: {reason}\n0 passed, 0 failed, 1 skipped")
        return 0


if __name__ == "__main__":
    sys.exit(main())
