"""ResNet-18 fed with photographs by feedline and by other loaders; images/s and the share of the step alone.

    python benches/resnet.py PHOTOS SECONDS [WAY ...]              # one GPU
    torchrun --nproc-per-node 2 benches/resnet.py PHOTOS SECONDS   # a process per GPU

PHOTOS has a folder of JPEGs per class. Ways: auto, gpu, cpu, auto:prefetch=N, dataloader, nvjpeg, spdl, dali,
dali:load=N (the share of the JPEG engines). The step is compiled on one GPU; GRAPH=1 also replays it as a CUDA graph.
SYNC=N waits for the GPU every N steps, CORES=N sets the workers.
"""
import glob, os, statistics, sys, time  # noqa: I001
import torch, torchvision
import torchvision.transforms.v2 as V
import feedline
from feedline import transforms as T

photos, seconds = sys.argv[1], float(sys.argv[2])
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
ways = sys.argv[3:] or ["auto", "gpu", "cpu"]
BATCH, SYNC = 256, int(os.environ.get("SYNC", 8))
cores = int(os.environ.get("CORES", 16))
torch.cuda.set_device(rank)
torch.backends.cudnn.benchmark = True
net = torchvision.models.resnet18().cuda().to(memory_format=torch.channels_last)
if world > 1:
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
    net = torch.nn.parallel.DistributedDataParallel(net, device_ids=[rank])
opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
loss_of = torch.nn.CrossEntropyLoss()
mean = torch.tensor([123.7, 116.3, 103.5], device="cuda").view(1, 3, 1, 1)


def forward(x, y):
    with torch.autocast("cuda", torch.bfloat16):
        x = (x.to(memory_format=torch.channels_last).to(torch.bfloat16) - mean) / 58
        return loss_of(net(x), y)


graph = bool(os.environ.get("GRAPH"))
fwd = torch.compile(forward, mode="reduce-overhead" if graph else None) if world == 1 else forward


def step(x, y):
    loss = fwd(x, y)
    loss.backward()
    opt.step()
    opt.zero_grad(set_to_none=True)


def timed(batches):
    """Images/s of all ranks: the median of three windows."""
    for _ in range(25):
        step(*next(batches))
    torch.cuda.synchronize()
    rates = []
    for _ in range(3):
        # The same steps on every rank.
        steps = max(SYNC, int(seconds / 3 * 14000 / BATCH) // SYNC * SYNC)
        start = time.perf_counter()
        for _ in range(steps // SYNC):
            for _ in range(SYNC):
                step(*next(batches))
            torch.cuda.current_stream().synchronize()
        rates.append(steps * BATCH * world / (time.perf_counter() - start))
    return statistics.median(rates)


def alone():
    x = torch.randint(0, 255, (BATCH, 3, 224, 224), dtype=torch.uint8, device="cuda")
    y = torch.randint(0, 3, (BATCH,), device="cuda")
    while True:
        yield x, y


def forever(batches):
    while True:
        yield from batches()


class Photos(torch.utils.data.Dataset):
    def __init__(self):
        self.files = sorted(glob.glob(photos + "/*/*"))
        self.transform = V.Compose([V.RandomResizedCrop(224), V.RandomHorizontalFlip()])

    def __len__(self):
        return 400 * len(self.files)

    def __getitem__(self, index):
        file = self.files[index % len(self.files)]
        return self.transform(torchvision.io.decode_image(file, mode="RGB")), index % 3


def dataloader():
    loader = torch.utils.data.DataLoader(
        Photos(), BATCH, shuffle=True, num_workers=cores, pin_memory=True, drop_last=True, persistent_workers=True
    )
    return forever(lambda: ((x.cuda(non_blocking=True), y.cuda(non_blocking=True)) for x, y in loader))


def nvjpeg():
    """torchvision's call of nvJPEG, and its transforms on the GPU, in the training thread."""
    data = Photos()
    files = [torchvision.io.read_file(file) for file in data.files]

    def batches():
        ids = torch.randint(0, len(files), (BATCH,)).tolist()
        decoded = torchvision.io.decode_jpeg([files[i] for i in ids], mode="RGB", device="cuda")
        yield torch.stack([data.transform(one) for one in decoded]), torch.tensor(ids, device="cuda") % 3

    return forever(batches)


def spdl():
    """SPDL's threads over torchvision's decoder."""
    from spdl.pipeline import PipelineBuilder

    data = Photos()

    def ids():
        while True:
            yield from torch.randperm(len(data)).tolist()

    def collate(rows):
        x, y = torch.stack([row[0] for row in rows]).pin_memory(), torch.tensor([row[1] for row in rows])
        return x.cuda(rank, non_blocking=True), y.cuda(rank)

    builder = PipelineBuilder().add_source(ids()).pipe(data.__getitem__, concurrency=cores)
    pipeline = builder.aggregate(BATCH).pipe(collate).add_sink(4).build(num_threads=cores)
    with pipeline.auto_stop():
        yield from pipeline


def dali(load):
    """DALI's JPEG decoder, on the engines and on kernels, and its crop, resize and flip on the GPU."""
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    @pipeline_def(batch_size=BATCH, num_threads=cores, device_id=rank)
    def photographs():
        files, labels = fn.readers.file(file_root=photos, random_shuffle=True)
        options = {"hw_decoder_load": load} if load else {}
        decoded = fn.decoders.image_random_crop(files, device="mixed", random_area=[0.08, 1.0], **options)
        resized = fn.resize(decoded, size=(224, 224))
        return fn.flip(resized, horizontal=fn.random.coin_flip()), labels.gpu()

    pipeline = photographs()
    pipeline.build()
    for (batch,) in DALIGenericIterator(pipeline, ["x", "y"]):
        yield batch["x"].permute(0, 3, 1, 2), batch["y"].view(-1).long()


def say(text):
    if rank == 0:
        print(text, flush=True)


base = timed(alone())
say(f"{world} x {torch.cuda.get_device_name()}{', graph' if graph else ''}, a synchronisation every {SYNC} steps: step alone {base:.0f} images/s")
for way in ways:
    try:
        if way in ("dataloader", "nvjpeg", "spdl"):
            rate, what = timed({"dataloader": dataloader, "nvjpeg": nvjpeg, "spdl": spdl}[way]()), ""
        elif way.startswith("dali"):
            rate, what = timed(dali(float(way.partition("=")[2] or 0))), ""
        else:
            decode, _, prefetch = way.partition(":prefetch=")
            steps = [T.RandomResizedCrop(224), T.RandomHorizontalFlip()]
            data = feedline.images(photos, steps, decode=decode).repeat(400)
            loader = feedline.Loader(
                data, BATCH, shuffle=True, seed=7, last_batch="drop", device=f"cuda:{rank}", framework="torch",
                workers=cores - 1, prefetch=int(prefetch) if prefetch else None,
            )  # fmt: skip

            def batches():
                for batch in loader:
                    x, y = batch["image"], batch["label"]
                    del batch
                    yield x, y

            rate, report = timed(forever(batches)), loader.report()
            ms = {name: round(report.data["service"][name + "_ns"] / 1e6, 1) for name in ("decode", "map", "step")}
            what = f"ms per batch {ms}; {report.diagnosis}"
            loader.close()
        say(f"  {way:16s} {rate:7.0f} images/s {rate / base:.3f}  {what}")
    except ImportError as error:
        say(f"  {way:16s} is not installed: {error}")
say(f"step alone, again {timed(alone()):.0f}")
if world > 1:
    torch.distributed.destroy_process_group()
