#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the recordings of invented machines that stand beside it, a folder each:

  hwloc.xml     processors, NUMA nodes and the PCI tree, as hwloc 2 exports them
  sys.txt       files below /sys, a line each: PATH:CONTENT (as grep prints them)
  nvml.txt      the GPUs, as tests/fake_nvml.c reads them
  environment   what the process was told, NAME=VALUE

Recordings of real machines need no line here: a folder with these files is enough."""
import pathlib
import sys
from xml.sax.saxutils import quoteattr

GB = 1 << 30
LANE = {2: 0.5, 3: 0.984615, 4: 1.969231, 5: 3.938462}     # GB/s of a PCIe lane
SPEED = {2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0}                  # GT/s


class Xml:
    def __init__(self):
        self.lines, self.index, self.depth = [], 0, 1

    def open(self, close=False, **attributes):
        self.index += 1
        text = "".join(f" {k}={quoteattr(str(v))}" for k, v in attributes.items())
        self.lines.append("  " * self.depth +
                          f'<object{text} gp_index="{self.index}"{"/" if close else ""}>')
        self.depth += not close

    def close(self):
        self.depth -= 1
        self.lines.append("  " * self.depth + "</object>")

    def info(self, name, value):
        self.lines.append("  " * self.depth + f"<info name={quoteattr(name)} value={quoteattr(value)}/>")


def mask(numbers):
    value = sum(1 << n for n in numbers)
    words = []
    while value or not words:
        words.insert(0, f"0x{value & 0xffffffff:08x}")
        value >>= 32
    return ",".join(words)


def sets(pus, nodes):
    cpu, node = mask(pus), mask(nodes)
    return dict(cpuset=cpu, complete_cpuset=cpu, nodeset=node, complete_nodeset=node)


class Device:
    """A GPU or a NIC: bus number, then what it is."""

    def __init__(self, bus, kind, pci_type, gen=3, width=16, vendor="", model="", name=None):
        self.address = f"0000:{bus:02x}:00.0"
        self.kind, self.pci_type, self.gen, self.width = kind, pci_type, gen, width
        self.vendor, self.model, self.name = vendor, model, name

    def write(self, xml):
        xml.open(type="PCIDev", pci_busid=self.address, pci_type=self.pci_type,
                 pci_link_speed=f"{LANE[self.gen] * self.width:.6f}")
        if self.vendor:
            xml.info("PCIVendor", self.vendor)
            xml.info("PCIDevice", self.model)
        if self.name:
            xml.open(close=True, type="OSDev", name=self.name,
                     osdev_type=3 if self.kind == "hca" else 2)
        xml.close()


def gpu(bus, model="Tesla V100", gen=3, width=16, device="1db1"):
    return Device(bus, "gpu", f"0302 [10de:{device}] [10de:1212] a1", gen, width,
                  "NVIDIA Corporation", model)


def hca(bus, name, gen=3, width=16, kind="0207 [15b3:1013] [15b3:0008] 00"):
    return Device(bus, "hca", kind, gen, width, name=name)


class Bridge:
    def __init__(self, address, buses, *children, gen=3, width=16):
        self.address, self.buses, self.children = address, buses, children
        self.gen, self.width = gen, width

    def write(self, xml, depth):
        xml.open(type="Bridge", bridge_type="1-1", depth=depth,
                 bridge_pci="0000:[%02x-%02x]" % self.buses, pci_busid=self.address,
                 pci_type="0604 [10b5:8764] [0000:0000] aa",
                 pci_link_speed=f"{LANE[self.gen] * self.width:.6f}")
        for child in self.children:
            child.write(xml, depth + 1) if isinstance(child, Bridge) else child.write(xml)
        xml.close()


def root_port(bus, first, *children, **keys):
    """A port of the host bridge on 'bus' with what is plugged into it."""
    return Bridge(f"0000:{bus:02x}:{first & 0x1f:02x}.0", (first, first + 7), *children, **keys)


def switch(bus, first, *devices, **keys):
    """A PCIe switch: root port, upstream port, a downstream port for each device."""
    ports = [Bridge(f"0000:{first + 1:02x}:{4 * i:02x}.0",
                    (int(d.address[5:7], 16), int(d.address[5:7], 16)), d, **keys)
             for i, d in enumerate(devices)]
    return root_port(bus, first, Bridge(f"0000:{first:02x}:00.0", (first + 1, first + 7),
                                        *ports, **keys), **keys)


class Host:
    """A host bridge; 'numa' is what it hangs on, None: the machine."""

    def __init__(self, bus, *children):
        self.bus, self.children = bus, children

    def write(self, xml):
        xml.open(type="Bridge", bridge_type="0-1", depth=0,
                 bridge_pci=f"0000:[{self.bus:02x}-{self.bus + 0x1f:02x}]")
        for child in self.children:
            child.write(xml, 1) if isinstance(child, Bridge) else child.write(xml)
        xml.close()


def machine(host, cpu, packages, numas, cores, memory, hosts, threads=1, l3=32 << 20,
            l2=1 << 20, arch="x86_64"):
    """hwloc's XML. 'numas' and 'cores' of each package; 'hosts[n]': bridges of NUMA node n."""
    xml = Xml()
    total = packages * numas * cores

    def pus(first, n):
        return [c + t * total for t in range(threads) for c in range(first, first + n)]

    everything = sets(pus(0, total), range(packages * numas))
    xml.open(type="Machine", os_index=0, **everything,
             allowed_cpuset=everything["cpuset"], allowed_nodeset=everything["nodeset"])
    xml.info("HostName", host)
    xml.info("Architecture", arch)
    for p in range(packages):
        xml.open(type="Package", os_index=p,
                 **sets(pus(p * numas * cores, numas * cores),
                        range(p * numas, (p + 1) * numas)))
        xml.info("CPUModel", cpu)
        vendor, family, model = ("AuthenticAMD", 25, 1) if "AMD" in cpu else ("GenuineIntel", 6, 85)
        if arch == "x86_64":
            xml.info("CPUVendor", vendor)
            xml.info("CPUFamilyNumber", str(family))
            xml.info("CPUModelNumber", str(model))
        for n in range(p * numas, (p + 1) * numas):
            mine = sets(pus(n * cores, cores), [n])
            if numas > 1:
                xml.open(type="Group", kind=0, subkind=0, **mine)
            xml.open(close=True, type="NUMANode", os_index=n, **mine,
                     local_memory=memory // (packages * numas))
            if l3:
                xml.open(type="L3Cache", **mine, cache_size=l3, depth=3, cache_linesize=64,
                         cache_associativity=0, cache_type=0)
            for c in range(n * cores, (n + 1) * cores):
                one = sets(pus(c, 1), [n])
                xml.open(type="L2Cache", **one, cache_size=l2, depth=2, cache_linesize=64,
                         cache_associativity=0, cache_type=0)
                xml.open(type="Core", os_index=c, **one)
                for t in range(threads):
                    xml.open(close=True, type="PU", os_index=c + t * total,
                             **sets([c + t * total], [n]))
                xml.close()
                xml.close()
            if l3:
                xml.close()
            for bridge in hosts.get(n, []):
                bridge.write(xml)
            if numas > 1:
                xml.close()
        xml.close()
    xml.close()
    return ('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
            '<topology version="2.0">\n' + "\n".join(xml.lines) + "\n</topology>\n")


def port(name, address, numa, rate, layer="InfiniBand", lid=1, state="4: ACTIVE", gen=3,
         width=16, max_width=16, guid=1):
    folder = f"class/infiniband/{name}"
    return [f"{folder}/node_guid:0000:0000:00c0:{guid:04x}",
            f"{folder}/ports/1/state:{state}", f"{folder}/ports/1/rate:{rate}",
            f"{folder}/ports/1/lid:0x{lid:x}", f"{folder}/ports/1/link_layer:{layer}",
            f"{folder}/device/uevent:PCI_SLOT_NAME={address}",
            f"{folder}/device/numa_node:{numa}",
            f"{folder}/device/current_link_width:{width}",
            f"{folder}/device/max_link_width:{max_width}",
            f"{folder}/device/current_link_speed:{SPEED[gen]} GT/s PCIe",
            f"{folder}/device/max_link_speed:{SPEED[gen]} GT/s PCIe"]


def uuid(kind, n):
    return f"{kind}-{n:08x}-0000-4000-8000-{n * 0x1111:012x}"


def driver_gpu(g, n, name, memory, compute, links=(), gen=None, extra=(), n_gpus=0, clocks="1530 1530",
               p2p=0):
    lines = [f"gpu {g.address}", f"name {name}", f"uuid {uuid('GPU', n + 1)}",
             f"memory {memory}", f"compute {compute}",
             f"pcie {gen or g.gen} {g.width} {gen or g.gen} 16", "mig 0" if compute >= "8" else "",
             "ecc 1 0 0", "rows 0 0" if compute >= "8" else "", f"clocks {clocks}", "throttle 0"]
    lines += [f"link {i} " + ("down" if link is None else "up %s %s %d" % link)
              for i, link in enumerate(links)]
    lines += [f"p2p {p2p} {j}" for j in range(n_gpus) if j != n]
    return [line for line in lines + list(extra) if line]


def save(name, xml, sys_lines=(), nvml=(), environment=(), proc=()):
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent, name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hwloc.xml").write_text(xml)
    for file, lines in (("sys.txt", sys_lines), ("nvml.txt", nvml),
                        ("environment", environment), ("proc.txt", proc)):
        if lines:
            (folder / file).write_text("\n".join(lines) + "\n")


def driver_version(number, kind="x86_64 Kernel Module "):
    return f"driver/nvidia/version:NVRM version: NVIDIA UNIX {kind} {number}  Release Build"


def mesh(gpus, counts, speed):
    """Links of each GPU where counts[i][j] of them join i and j."""
    return [[("gpu", gpus[j].address, speed) for j in range(len(gpus)) for _ in range(counts[i][j])]
            for i in range(len(gpus))]


def dgx1():
    buses = [0x06, 0x07, 0x0a, 0x0b, 0x85, 0x86, 0x89, 0x8a]
    gpus = [gpu(b, "Tesla V100 SXM2 32GB", device="1db5") for b in buses]
    nics = [hca(b, f"mlx5_{i}") for i, b in enumerate([0x05, 0x0c, 0x84, 0x8b])]
    hosts = {0: [Host(0x00, switch(0x00, 0x02, gpus[0], gpus[1], nics[0]),
                      switch(0x00, 0x08, gpus[2], gpus[3], nics[1]))],
             1: [Host(0x80, switch(0x80, 0x81, gpus[4], gpus[5], nics[2]),
                      switch(0x80, 0x87, gpus[6], gpus[7], nics[3]))]}
    counts = [[0, 1, 1, 2, 2, 0, 0, 0], [1, 0, 2, 1, 0, 2, 0, 0], [1, 2, 0, 2, 0, 0, 1, 0],
              [2, 1, 2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 1, 1, 2], [0, 2, 0, 0, 1, 0, 2, 1],
              [0, 0, 1, 0, 1, 2, 0, 2], [0, 0, 0, 1, 2, 1, 2, 0]]
    links = mesh(gpus, counts, 25781)
    nvml = ["driver 535.104.05"]
    for i, g in enumerate(gpus):
        nvml += driver_gpu(g, i, "Tesla V100-SXM2-32GB", 32 * GB, "7.0", links[i], n_gpus=8)
    ports = [line for i, n in enumerate(nics)
             for line in port(f"mlx5_{i}", n.address, i // 2, "100 Gb/sec (4X EDR)", lid=10 + i, guid=i)]
    save("dgx1", machine("dgx1", "Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz", 2, 1, 20, 512 * GB,
                         hosts, threads=2, l3=50 << 20, l2=256 << 10),
         ports + ["module/nv_peer_mem/version:1.1-0"], nvml)


def dgx2():
    buses = [0x34, 0x36, 0x39, 0x3b, 0x57, 0x59, 0x5c, 0x5e,
             0xb7, 0xb9, 0xbc, 0xbe, 0xe0, 0xe2, 0xe5, 0xe7]
    gpus = [gpu(b, "Tesla V100 SXM3 32GB", device="1db8") for b in buses]
    nics = [hca(b, f"mlx5_{i}") for i, b in
            enumerate([0x35, 0x3a, 0x58, 0x5d, 0xb8, 0xbd, 0xe1, 0xe6])]

    def tree(bus, first, four, two):
        """Two switches below a third."""
        below = [Bridge(f"0000:{first + 1:02x}:{8 * k:02x}.0", (first + 2 + 7 * k, first + 8 + 7 * k),
                        *[Bridge(f"0000:{first + 1:02x}:{16 + 3 * k + i:02x}.0", (0, 0), d) for i, d in
                          enumerate([four[2 * k], four[2 * k + 1], two[k]])]) for k in range(2)]
        return root_port(bus, first, Bridge(f"0000:{first:02x}:00.0", (first + 1, first + 15), *below))

    hosts = {n: [Host(bus, tree(bus, bus + 1, gpus[8 * n + 4 * k:8 * n + 4 * k + 4],
                                nics[4 * n + 2 * k:4 * n + 2 * k + 2]))
                 for k, bus in enumerate(pair)]
             for n, pair in enumerate([(0x30, 0x50), (0xb0, 0xd8)])}
    switches = [f"0000:{0xc0 + i:02x}:00.0" for i in range(6)]
    nvml = ["driver 535.104.05"]
    for i, g in enumerate(gpus):
        nvml += driver_gpu(g, i, "Tesla V100-SXM3-32GB", 32 * GB, "7.0",
                           [("switch", s, 25781) for s in switches], n_gpus=16)
    ports = [line for i, n in enumerate(nics)
             for line in port(f"mlx5_{i}", n.address, i // 4, "100 Gb/sec (4X EDR)", lid=20 + i, guid=i)]
    save("dgx2", machine("dgx2", "Intel(R) Xeon(R) Platinum 8168 CPU @ 2.70GHz", 2, 1, 24,
                         1536 * GB, hosts, l3=33 << 20), ports, nvml)


def hgx():
    buses = [0x1b, 0x2b, 0x43, 0x52, 0x9b, 0xab, 0xc3, 0xd2]
    gpus = [gpu(b, "H100 SXM5 80GB", gen=5, device="2330") for b in buses]
    nics = [hca(b, f"mlx5_{i}", gen=5, kind="0207 [15b3:1021] [15b3:0041] 00") for i, b in
            enumerate([0x1c, 0x2c, 0x44, 0x53, 0x9c, 0xac, 0xc4, 0xd3])]
    starts = [(0x10, 0x15), (0x40, 0x41), (0x90, 0x95), (0xc0, 0xc1)]
    hosts = {}
    for k, (bus, first) in enumerate(starts):
        hosts.setdefault(k // 2, []).append(
            Host(bus, switch(bus, first, gpus[2 * k], nics[2 * k], gpus[2 * k + 1], nics[2 * k + 1],
                             gen=5)))
    switches = [f"0000:{b:02x}:00.0" for b in (0x07, 0x08, 0x09, 0x0a)]
    per_switch = [5, 4, 4, 5]
    links = [("switch", s, 26562) for s, n in zip(switches, per_switch) for _ in range(n)]
    nvml = ["driver 550.54.15"]
    for i, g in enumerate(gpus):
        nvml += driver_gpu(g, i, "NVIDIA H100 80GB HBM3", 80 * GB, "9.0", links, n_gpus=8,
                           clocks="1980 1980")
    ports = [line for i, n in enumerate(nics)
             for line in port(f"mlx5_{i}", n.address, i // 4, "400 Gb/sec (4X NDR)", lid=30 + i, guid=i,
                              gen=5)]
    save("hgx-h100", machine("hgx1", "Intel(R) Xeon(R) Platinum 8480C", 2, 1, 56, 2048 * GB, hosts,
                             l3=105 << 20, l2=2 << 20),
         ports + ["module/nvidia_peermem/version:550.54.15"], nvml)


def omni_path():
    gpus = [gpu(b, "Tesla P100 SXM2 16GB", device="15f9") for b in (0x06, 0x07, 0x86, 0x87)]
    nics = [hca(b, f"hfi1_{i}", kind="0208 [8086:24f0] [8086:24f0] 11") for i, b in
            enumerate((0x08, 0x09, 0x88, 0x89))]
    hosts = {k: [Host(0x80 * k, switch(0x80 * k, 0x80 * k + 2, gpus[2 * k], gpus[2 * k + 1], nics[2 * k]),
                      root_port(0x80 * k, 0x80 * k + 9, nics[2 * k + 1]))] for k in range(2)}
    links = mesh(gpus, [[0, 2, 1, 1], [2, 0, 1, 1], [1, 1, 0, 2], [1, 1, 2, 0]], 20000)
    nvml = ["driver 470.57.02"]
    for i, g in enumerate(gpus):
        nvml += driver_gpu(g, i, "Tesla P100-SXM2-16GB", 16 * GB, "6.0", links[i], n_gpus=4,
                           clocks="1480 1480")
    ports = [line for i, n in enumerate(nics)
             for line in port(f"hfi1_{i}", n.address, i // 2, "100 Gb/sec (4X EDR)", lid=40 + i, guid=i)]
    save("omni-path", machine("r1i0n0", "Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", 2, 1, 14, 256 * GB,
                              hosts, threads=2, l3=35 << 20, l2=256 << 10),
         ports + ["module/nvidia/holders/hfi1/version:10.13"], nvml)


def one_socket():
    gpus = [gpu(b, "A100 PCIe 40GB", gen=4, device="20f1") for b in (0x01, 0x21, 0x41, 0x61)]
    nic = hca(0xa1, "mlx5_0", gen=4)
    hosts = {0: [Host(b, root_port(b, b + 1, g, gen=4)) for b, g in zip((0, 0x20, 0x40, 0x60), gpus)],
             1: [Host(0xa0, root_port(0xa0, 0xa1, nic, gen=4))]}
    nvml = ["driver 525.60.13"]
    for i, g in enumerate(gpus):
        nvml += driver_gpu(g, i, "NVIDIA A100-PCIE-40GB", 40 * GB, "8.0", [None] * 12, n_gpus=4,
                           clocks="1410 1410")
    save("one-socket", machine("gpu17", "AMD EPYC 7543 32-Core Processor", 2, 1, 32, 512 * GB, hosts,
                               l2=512 << 10),
         port("mlx5_0", nic.address, 1, "200 Gb/sec (4X HDR)", gen=4) +
         ["module/nvidia/version:525.60.13"], nvml, proc=[driver_version("525.60.13")])


def mig():
    card = gpu(0x01, "A100 SXM4 80GB", gen=4, device="20b2")
    parts = [f"part {uuid('MIG', 0x100 + i)} {size * GB} NVIDIA A100-SXM4-80GB MIG {word}"
             for i, (size, word) in enumerate(((40, "3g.40gb"), (20, "2g.20gb")))]
    text = driver_gpu(card, 0, "NVIDIA A100-SXM4-80GB", 80 * GB, "8.0", [None] * 12, clocks="1410 1410",
                      extra=["mig 1"] + parts)
    save("mig", machine("mig1", "AMD EPYC 7413 24-Core Processor", 1, 1, 24, 256 * GB,
                        {0: [Host(0, root_port(0, 1, card, gen=4))]}, l2=512 << 10), (),
         ["driver 535.104.05"] + text, [f"CUDA_VISIBLE_DEVICES={uuid('MIG', 0x101)}"])


def four_a100(name, host, dead=(), environment=(), seen=range(4), errors=()):
    gpus = [gpu(b, "A100 SXM4 40GB", gen=4, device="20b0") for b in (0x03, 0x44, 0x84, 0xc4)]
    nics = [hca(0x24, "mlx5_0", gen=4), hca(0xa4, "mlx5_1", gen=4)]
    hosts = {0: [Host(0x00, root_port(0x00, 0x03, gpus[0], gen=4))],
             1: [Host(0x20, root_port(0x20, 0x24, nics[0], gen=4)),
                 Host(0x40, root_port(0x40, 0x44, gpus[1], gen=4))],
             2: [Host(0x80, root_port(0x80, 0x84, gpus[2], gen=4))],
             3: [Host(0xa0, root_port(0xa0, 0xa4, nics[1], gen=4)),
                 Host(0xc0, root_port(0xc0, 0xc4, gpus[3], gen=4))]}
    links = mesh(gpus, [[0, 4, 4, 4], [4, 0, 4, 4], [4, 4, 0, 4], [4, 4, 4, 0]], 25000)
    for a, number in dead:
        links[a][number] = None
    nvml = ["driver 515.65.01"]
    for i, g in enumerate(gpus):
        if i in seen:
            nvml += driver_gpu(g, i, "NVIDIA A100-SXM4-40GB", 40 * GB, "8.0", links[i],
                               n_gpus=len(seen), clocks="1410 1410",
                               extra=[e for n, e in errors if n == i])
    ports = [line for i, n in enumerate(nics)
             for line in port(f"mlx5_{i}", n.address, 1 + 2 * i, "200 Gb/sec (4X HDR)", gen=4, guid=i)]
    save(name, machine(host, "AMD EPYC 7402 24-Core Processor", 2, 2, 12, 512 * GB, hosts,
                       l3=16 << 20, l2=512 << 10),
         ports + ["module/nvidia/version:515.65.01"], nvml, environment,
         [driver_version("515.65.01", "Open Kernel Module for x86_64 "),
          "kallsyms:0000000000000000 t ib_umem_dmabuf_get\t[ib_uverbs]"])


def no_gpu():
    save("no-gpu", machine("c001", "AMD EPYC 7763 64-Core Processor", 2, 1, 16, 256 * GB,
                           {0: [Host(0xc0, root_port(0xc0, 0xc1, hca(0xc1, "mlx5_0", gen=4), gen=4))]},
                           l2=512 << 10),
         port("mlx5_0", "0000:c1:00.0", 0, "100 Gb/sec (2X HDR)", gen=4))


def arm():
    save("arm", machine("a64fx-1", "A64FX", 1, 4, 12, 32 * GB, {}, l3=0, l2=8 << 20, arch="aarch64"),
         ["class/net/eth0/operstate:up", "class/net/eth0/speed:10000", "class/net/eth0/type:1"])


if __name__ == "__main__":
    dgx1()
    dgx2()
    hgx()
    omni_path()
    one_socket()
    mig()
    four_a100("dead-nvlink", "jw0103", dead=((1, 2), (0, 2)))
    four_a100("slurm-step", "jw0104", seen=(2, 3),
              environment=["CUDA_VISIBLE_DEVICES=0,1", "SLURM_STEP_GPUS=2,3", "SLURM_JOB_ID=7",
                           "SLURM_TOPOLOGY_ADDR=spine.leaf1.jw0104",
                           "SLURM_TOPOLOGY_ADDR_PATTERN=switch.switch.node"])
    four_a100("lost-gpu", "jw0105",
              errors=((2, "error DeviceGetHandleByIndex_v2 15"), (3, "error DeviceGetName 999"),
                      (3, "error DeviceGetMemoryInfo 999")))
    no_gpu()
    arm()
