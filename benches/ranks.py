"""The trainer on several GPUs of one host: first whether it is right, then how fast it is, beside PyTorch
DDP.

    NCCL_NVLS_ENABLE=0 python3 benches/ranks.py --mlp bin/mlp --gpus 2 --out out

Needs numpy, and for the peer PyTorch with torchrun. Ends with 1 if a check fails. Parts that would begin
after --limit seconds are skipped, and named. `--device host` tries the script itself on a machine without
GPUs.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

import numpy as np

SIDE, TRAIN, TEST = 28, 1_200_000, 1_000


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mlp", required=True, help="the trainer's program")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--out", default="out", help="folder for the results")
    parser.add_argument("--data", help="folder with MNIST, for the losses [the built-in digits]")
    parser.add_argument("--scratch", default="/tmp", help="folder for a set of 940 MB")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit", type=float, default=290)
    parser.add_argument("--only", default="losses,launchers,faults,speed,peer")
    run = Run(parser.parse_args())
    for part in run.options.only.split(","):
        run.part(part)
    run.summary()
    sys.exit(1 if run.failed else 0)


class Run:
    def __init__(self, options):
        self.options, self.start, self.failed, self.rows = options, time.monotonic(), [], []
        self.mlp = str(pathlib.Path(options.mlp).resolve())
        self.out = pathlib.Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.worlds = [size for size in (1, 2, 4, 8) if size <= options.gpus]
        self.small = options.device == "host"

    def part(self, name):
        if time.monotonic() - self.start > self.options.limit:
            print(f"{name}: skipped, the time is up")
            return
        print(f"== {name} ({time.monotonic() - self.start:.0f} s)", flush=True)
        try:
            getattr(self, name)()
        except Exception as error:
            self.check(False, f"{name}: {type(error).__name__}: {error}")

    def check(self, fits, what):
        print(("ok      " if fits else "FAILED  ") + what, flush=True)
        if not fits:
            self.failed.append(what)

    def arguments(self, *more):
        data = ["--data", str(pathlib.Path(self.options.data).resolve())] if self.options.data else []
        return [self.mlp, "--device", self.options.device, *data, *map(str, more)]

    def begin(self, size, command):
        """Starts `size` ranks by hand."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        ranks = [{**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.out)
        return [subprocess.Popen(command, env=env, **pipes) for env in ranks]

    def train(self, size, *more, limit=100):
        """Trains as `size` ranks, and returns the report."""
        report = self.out / "report.json"
        report.unlink(missing_ok=True)
        ranks = self.begin(size, self.arguments("--quiet", "--json", "report.json", *more))
        outputs = self.end(ranks, limit)
        wrong = [
            (rank, output) for rank, (child, output) in enumerate(zip(ranks, outputs)) if child.returncode
        ]
        if wrong:
            raise RuntimeError("; ".join(f"rank {rank}: {output}" for rank, output in wrong))
        return json.loads(report.read_text())

    def end(self, ranks, limit):
        """Waits for all ranks, and returns what they said."""
        deadline = time.monotonic() + limit
        outputs = []
        for child in ranks:
            try:
                outputs.append(child.communicate(timeout=max(0.1, deadline - time.monotonic()))[1].strip())
            except subprocess.TimeoutExpired:
                child.kill()
                outputs.append(f"still ran after {limit} s: {child.communicate()[1].strip()}")
        return outputs

    def losses(self):
        """Worlds with the same global batch have the same losses, but for the order of additions."""
        recipe = ["--no-shuffle", "--init", "reference", "--epochs", 1, "--lr", 0.05]
        recipe += ["--steps", 40, "--hidden", 64] if self.small else []
        alone = self.train(1, "--batch", 128, *recipe)
        for size in self.worlds[1:]:
            for bucket in (0, 1000):
                report = self.train(size, "--batch", 128 // size, "--bucket-mib", bucket, *recipe)
                off = [abs(one - two) / one for one, two in zip(alone["losses"], report["losses"])]
                same = len(report["losses"]) == len(alone["losses"]) and report["proof"] == alone["proof"]
                accurate = abs(report["test_accuracy"] - alone["test_accuracy"]) <= 0.005
                what = (
                    f"{report['connection']}, buckets from {bucket} MiB: losses differ by {max(off[:20]):.1e} in the "
                    f"first 20 steps, {max(off):.1e} in {len(off)}; accuracy {report['test_accuracy']:.4f}, alone "
                    f"{alone['test_accuracy']:.4f}"
                )
                self.check(
                    same
                    and accurate
                    and report["exactly_once"]
                    and max(off[:20]) <= 1e-3
                    and max(off) <= 0.2,
                    what,
                )

    def launchers(self):
        """torchrun starts it, on the host device and on GPUs."""
        torchrun = shutil.which("torchrun") or [sys.executable, "-m", "torch.distributed.run"]
        torchrun = [torchrun] if isinstance(torchrun, str) else torchrun
        if subprocess.run([*torchrun, "--help"], capture_output=True).returncode:
            print("not run: torchrun (not installed)")
            return
        for device in sorted({"host", self.options.device}):
            report = self.out / "report.json"
            report.unlink(missing_ok=True)
            command = self.arguments(
                "--quiet", "--json", "report.json", "--epochs", 1, "--steps", 40, "--hidden", 64
            )
            command[command.index("--device") + 1] = device
            launch = [*torchrun, "--standalone", "--nproc-per-node", "2", "--no-python", *command]
            done = subprocess.run(launch, capture_output=True, text=True, cwd=self.out, timeout=100)
            if done.returncode:
                self.check(False, f"torchrun, {device}: {done.stderr.strip()[-600:]}")
                continue
            read = json.loads(report.read_text())
            self.check(
                read["world"] == 2 and read["exactly_once"], f"torchrun, {device}: {read['connection']}"
            )

    def faults(self):
        """A rank is killed or stopped: the others end in time and name it, and the run resumes."""
        saved = self.out / "saved.ckpt"
        size = self.worlds[-1]
        endless = ["--quiet", "--batch", 64, "--checkpoint", "saved.ckpt", "--every", 50, "--rank-limit", 5]
        for name, number, victim, limit in [
            ("killed", signal.SIGKILL, 1, 10),
            ("killed", signal.SIGKILL, 0, 10),
            ("stopped", signal.SIGSTOP, size - 1, 20),
        ]:
            saved.unlink(missing_ok=True)
            ranks = self.begin(size, self.arguments(*endless, "--epochs", 1_000_000))
            begun = time.monotonic()
            while (
                not saved.exists()
                and time.monotonic() - begun < 60
                and all(rank.poll() is None for rank in ranks)
            ):
                time.sleep(0.05)
            time.sleep(0.3)
            ranks[victim].send_signal(number)
            start = time.monotonic()
            others = [rank for index, rank in enumerate(ranks) if index != victim]
            said = self.end(others, limit)
            took = time.monotonic() - start
            ranks[victim].kill()
            ranks[victim].communicate()
            named = all(rank.returncode == 2 for rank in others) and all(
                f"rank {victim} " in text for text in said
            )
            self.check(
                named and took < limit,
                f"rank {victim} of {size} {name}: the others ended after {took:.1f} s; {said[0]}",
            )
        if not saved.exists():
            self.check(False, "there is no checkpoint to resume from")
            return
        steps = 10_000_000
        for resumed in sorted({1, size}):
            # The checkpoint's epoch decides how far; a few steps more are enough.
            batch = 64 * size // resumed
            probe = self.train_from(saved, resumed, batch, steps)
            self.check(
                probe["exactly_once"],
                f"resumed on {resumed} of {size} ranks: {probe['steps']} steps, each sample once",
            )

    def train_from(self, saved, size, batch, steps):
        header = json.loads(saved.read_bytes()[8 : 8 + struct.unpack("<Q", saved.read_bytes()[:8])[0]])
        done = header["losses"]["shape"][0]
        return self.train(
            size, "--batch", batch, "--resume", "saved.ckpt", "--epochs", steps, "--steps", done + 30
        )

    def set(self):
        """A set so large that the ends of its epochs do not count."""
        folder = pathlib.Path(self.options.scratch) / "feedline-ranks"
        count = 20_000 if self.small else TRAIN
        if not (folder / "done").exists():
            folder.mkdir(parents=True, exist_ok=True)
            random = np.random.default_rng(1)
            for name, length in (("train", count), ("t10k", TEST)):
                with open(folder / f"{name}-images-idx3-ubyte", "wb") as file:
                    file.write(
                        struct.pack(">4i", 0x803, length, SIDE, SIDE) + random.bytes(length * SIDE * SIDE)
                    )
                with open(folder / f"{name}-labels-idx1-ubyte", "wb") as file:
                    file.write(struct.pack(">2i", 0x801, length))
                    file.write(random.integers(0, 10, length, dtype=np.uint8).tobytes())
            (folder / "done").touch()
        return folder

    def speed(self):
        """Samples per second of worlds against one GPU."""
        self.options.data = str(self.set())
        sizes = [(512, 512, 4000), (512, 4096, 3000), (4096, 4096, 300)]
        more = [("resident", 1)]
        if self.small:
            sizes, more = [(32, 64, 20)], [("staged", 1)]
        for hidden, batch, steps in sizes:
            others = (hidden, batch) == (512, 4096) and not self.small
            modes = more + ([("auto", 1), ("resident", 1000), ("resident", 0)] if others else [])
            for mode, bucket in modes:
                for size in self.worlds:
                    if mode == "resident" and bucket != 1 and size != self.worlds[-1]:
                        continue
                    if time.monotonic() - self.start > self.options.limit:
                        print(f"skipped: {hidden} x {batch}, {mode}, {size} ranks")
                        continue
                    self.rate(hidden, batch, steps, mode, bucket, size)

    def rate(self, hidden, batch, steps, mode, bucket, size):
        common = [
            "--hidden",
            hidden,
            "--batch",
            batch,
            "--epochs",
            1_000_000,
            "--transfer-mode",
            mode,
            "--tf32",
            "--bucket-mib",
            bucket,
            "--check-every",
            1_000_000_000,
            "--lr",
            0.001,
        ]
        # The difference of two runs: without their starts.
        short, long = (
            self.train(size, *common, "--steps", count) for count in (steps // 5, steps + steps // 5)
        )
        seconds = long["seconds"] - short["seconds"]
        us = seconds / (long["steps"] - short["steps"]) * 1e6
        self.rows.append(
            {
                "form": f"feedline {mode}, buckets from {bucket} MiB",
                "world": size,
                "hidden": hidden,
                "batch": batch,
                "us": us,
                "samples_per_s": batch * size / us * 1e6,
                "waited": long["wait_share"],
                "diagnosis": long["diagnosis"],
            }
        )
        print(
            f"{hidden:5} x {batch:5} {mode:9} bucket {bucket:5} {size} ranks: {us:9.1f} us, {batch * size / us:9.3f} M/s, "
            f"waited {100 * long['wait_share']:.1f} %",
            flush=True,
        )

    def peer(self):
        """PyTorch DDP on the same machine in the same run."""
        script = pathlib.Path(__file__).parent / "peers/ddp_bench.py"
        rows = (self.out / "ddp.jsonl").resolve()
        rows.unlink(missing_ok=True)
        sizes = ["--sizes", "32x64"] if self.small else []
        for size in self.worlds:
            launch = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                str(size),
            ]
            done = subprocess.run(
                [*launch, str(script.resolve()), "--json", str(rows), *sizes],
                capture_output=True,
                text=True,
                timeout=150,
            )
            if done.returncode:
                print(f"not run: DDP on {size} ranks ({(done.stderr or done.stdout).strip()[-300:]})")
        if rows.exists():
            for line in rows.read_text().splitlines():
                row = json.loads(line)
                self.rows.append({**row, "form": f"torch {row['form']}"})

    def summary(self):
        (self.out / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        alone = {
            (row["form"], row["hidden"], row["batch"]): row["samples_per_s"]
            for row in self.rows
            if row["world"] == 1
        }
        lines = [
            "| model | batch per rank | form | ranks | us per step | M samples/s | of linear |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for row in sorted(
            self.rows, key=lambda row: (row["hidden"], row["batch"], row["form"], row["world"])
        ):
            one = alone.get((row["form"], row["hidden"], row["batch"]))
            if one is None and row["form"].startswith("feedline resident"):
                one = alone.get(("feedline resident, buckets from 1 MiB", row["hidden"], row["batch"]))
            share = (
                f"{row['samples_per_s'] / one / row['world']:.3f}"
                if one and "alone" not in row["form"]
                else "-"
            )
            lines.append(
                f"| 784-{row['hidden']}-{row['hidden']}-10 | {row['batch']} | {row['form']} | {row['world']} | "
                f"{row['us']:.1f} | {row['samples_per_s'] / 1e6:.3f} | {share} |"
            )
        lines += ["", f"{len(self.failed)} checks failed", *(f"- {what}" for what in self.failed)]
        (self.out / "summary.md").write_text("\n".join(lines) + "\n")
        print("\n".join(lines))
        print(f"{time.monotonic() - self.start:.0f} s")


if __name__ == "__main__":
    main()
