"""A run with pictures on the GPU that is killed and resumed at random is the whole run."""
import random, sys, time
import numpy as np, torch, feedline
from feedline import transforms as T
photos = sys.argv[1]
STEPS = [T.RandomResizedCrop(64), T.RandomHorizontalFlip()]
EPOCHS, BATCH = 8, 16
def made(decode, device, **kw):
    data = feedline.images(photos, STEPS, decode=decode).repeat(8)
    return feedline.Loader(data, BATCH, shuffle=11, device=device, framework="torch", epochs=EPOCHS, **kw)
def take(loader, first, max_batches, seen):
    left = max_batches
    for epoch in range(first, EPOCHS):
        for batch in loader.epoch(epoch):
            seen.append((epoch, batch.ids.tolist(), batch["image"].cpu().numpy().copy()))
            del batch
            left -= 1
            if left == 0:
                return
def same(a, b, level):
    assert len(a) == len(b), (len(a), len(b))
    worst = 0
    for (e, ids, x), (f, jds, y) in zip(a, b):
        assert (e, ids) == (f, jds)
        worst = max(worst, int(np.abs(x.astype(int) - y.astype(int)).max()))
    assert worst <= level, worst
    return worst
whole = {}
for decode, device in [("cpu", "cpu"), ("gpu", "cuda:0"), ("auto", "cuda:0")]:
    loader = made(decode, device); seen = []
    take(loader, 0, -1, seen); whole[decode] = (seen, loader.order_hash); loader.close()
print("batches", len(whole["gpu"][0]), "gpu to cpu", same(whole["gpu"][0], whole["cpu"][0], 3), "auto to cpu", same(whole["auto"][0], whole["cpu"][0], 3), flush=True)
assert len({hash for _, hash in whole.values()}) == 1
rng = random.Random(7)
for decode, level in [("gpu", 0), ("auto", 3)]:
    seen, state, kills, start = [], None, 0, time.time()
    while len(seen) < len(whole["gpu"][0]):
        loader = made(decode, "cuda:0", prefetch=rng.choice([None, 1, 2, 5]), workers=rng.choice([1, 3, 8]))
        first = 0
        if state is not None:
            loader.load_state_dict(state); first = loader.next_epoch
        n = rng.randrange(0, 6)
        if n: take(loader, first, n, seen)
        state = loader.state_dict(); last = loader.order_hash
        loader.close(); kills += 1
        if time.time() - start > 45: 
            loader = made(decode, "cuda:0"); loader.load_state_dict(state); take(loader, loader.next_epoch, -1, seen); last = loader.order_hash; loader.close(); break
    print(decode, kills, "kills, worst", same(seen, whole["gpu" if decode == "gpu" else "auto"][0], level), "hash equal", last == whole["gpu"][1], flush=True)
    assert last == whole["gpu"][1]
