"""ResNet-18 fed by each way of decoding; images/s and the share of the step alone."""
import sys, time, os, statistics
import torch, torchvision
import feedline
from feedline import transforms as T

photos, seconds = sys.argv[1], float(sys.argv[2])
BATCH = 256
torch.backends.cudnn.benchmark = True
net = torchvision.models.resnet18().cuda().to(memory_format=torch.channels_last)
opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
loss_of = torch.nn.CrossEntropyLoss()
mean = torch.tensor([123.7, 116.3, 103.5], device="cuda").view(1, 3, 1, 1)

def forward(x, y):
    with torch.autocast("cuda", torch.bfloat16):
        x = ((x.to(memory_format=torch.channels_last).to(torch.bfloat16)) - mean) / 58
        return loss_of(net(x), y)
fwd = torch.compile(forward)

def step(x, y):
    loss = fwd(x, y)
    loss.backward()
    opt.step()
    opt.zero_grad(set_to_none=True)

def timed(batches):
    for _ in range(25):
        step(*next(batches))
    torch.cuda.synchronize()
    rates = []
    for _ in range(3):
        start, n = time.perf_counter(), 0
        while time.perf_counter() - start < seconds / 3:
            for _ in range(8):
                step(*next(batches)); n += 1
            torch.cuda.current_stream().synchronize()
        rates.append(n * BATCH / (time.perf_counter() - start))
    return statistics.median(rates)

def forever(loader):
    while True:
        for b in loader:
            x, y = b["image"], b["label"]
            del b
            yield x, y

x = torch.randint(0, 255, (BATCH, 3, 224, 224), dtype=torch.uint8, device="cuda")
y = torch.randint(0, 3, (BATCH,), device="cuda")
def alone():
    while True:
        yield x, y
base = timed(alone())
print(f"{torch.cuda.get_device_name()}: step alone {base:.0f} images/s", flush=True)
steps = [T.RandomResizedCrop(224), T.RandomHorizontalFlip()]
for name, kw in [("auto", {}), ("gpu", {}), ("cpu", {})]:
    data = feedline.images(photos, steps, decode=name).repeat(400)
    loader = feedline.Loader(data, BATCH, shuffle=7, last_batch="drop", device="cuda", framework="torch", **kw)
    rate = timed(forever(loader))
    print(f"{name}: {rate:.0f} images/s, {rate / base:.3f} of the step alone; {loader.mode if hasattr(loader, 'mode') else ''}", flush=True)
    r = loader.report()
    print("   ", r.diagnosis); print("    service:", r.data["service"], "setup:", {k: r.data["setup"][k] for k in ("host_slots", "device_slots", "map_lanes", "workers")}, flush=True)
    loader.close()
    # without a step
    loader = feedline.Loader(data, BATCH, shuffle=7, last_batch="drop", device="cuda", framework="torch", **kw)
    it = forever(loader)
    for _ in range(20): next(it)
    start, n = time.perf_counter(), 0
    while time.perf_counter() - start < seconds / 2:
        z = next(it); n += 1
    torch.cuda.synchronize()
    print(f"    decode alone: {n * BATCH / (time.perf_counter() - start):.0f} images/s; {loader.report().data['service']}", flush=True)
    loader.close()
print(f"step alone, again {timed(alone()):.0f}", flush=True)
