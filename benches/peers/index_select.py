"""torch.index_select on records that lie in device memory: what `benches resident` is held against.

Each batch has its own indices, which are on the device beforehand; the output is a fresh tensor of PyTorch's pool
(`index_select`), or one tensor again and again (`out=`).
"""

import torch

from rows import Report, alone, arguments

# Bytes of a record, records of a batch: as in `benches/src/resident.rs`.
CASES = ((3 * 224 * 224, 256), (784, 4096))
# Batches of indices that are used in turn.
TURNS = 64


def main():
    options = arguments(__doc__)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "host"
    report = Report(options, name, f"torch {torch.__version__}")
    finish = torch.cuda.synchronize if device.type == "cuda" else lambda: None

    for row_bytes, batch in CASES:
        rows = (options.file_mib << 20) // row_bytes
        data = torch.randint(0, 256, (rows, row_bytes), dtype=torch.uint8, device=device)
        ids = [torch.randint(0, rows, (batch,), device=device) for _ in range(TURNS)]
        out = torch.empty((batch, row_bytes), dtype=torch.uint8, device=device)
        for how, select in (
            ("index_select", lambda index: torch.index_select(data, 0, index)),
            ("index_select out=", lambda index: torch.index_select(data, 0, index, out=out)),
        ):
            turn = iter(range(1 << 62))
            step = lambda: select(ids[next(turn) % TURNS])
            us = report.part(how, lambda: alone(options, step, finish))
            if us:
                rates = [batch * row_bytes / one / 1e3 for one in us]
                report.add(
                    "resident",
                    {"peer": how, "row_bytes": row_bytes, "batch": batch},
                    rates,
                    "GB/s",
                    us_per_batch=sorted(us)[len(us) // 2],
                )


if __name__ == "__main__":
    main()
