"""One of two processes: batches of 38 MB staged to one GPU; prints the report."""
import sys, time
import numpy as np, torch
import feedline
gpu, workers = int(sys.argv[1]), int(sys.argv[2])
x = np.zeros((12_000, 150_528), np.uint8); x[:, 0] = np.arange(12_000) % 251
with feedline.Loader(feedline.Data({"x": x}), 256, shuffle=7, framework="torch", device=f"cuda:{gpu}", transfer_mode=sys.argv[3], workers=workers, epochs=80) as loader:
    start = time.perf_counter(); n = 0
    for epoch in range(80):
        for batch in loader.epoch(epoch):
            n += 256 * 150_528
    torch.cuda.synchronize()
    print(gpu, f"{n / (time.perf_counter() - start) / 1e9:.1f} GB/s")
    print(loader.report())
