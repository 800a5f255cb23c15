"""GB/s of pinned copies to every GPU at once, of memcpy by N threads into pinned memory, and of both together."""

import ctypes
import threading
import time

import torch

MIB = 1 << 20
SIZE = 38 * MIB
libc = ctypes.CDLL(None)
source = torch.full((2048 * MIB,), 3, dtype=torch.uint8)


def pinned(count):
    return [torch.ones(SIZE, dtype=torch.uint8).pin_memory() for _ in range(count)]


def copies(stop, rates, gpu):
    torch.cuda.set_device(gpu)
    host, device = pinned(4), [torch.empty(SIZE, dtype=torch.uint8, device="cuda") for _ in range(4)]
    stream, copied = torch.cuda.Stream(), [torch.cuda.Event() for _ in range(4)]
    done, start = 0, time.perf_counter()
    with torch.cuda.stream(stream):
        while not stop.is_set():
            slot = done % 4
            copied[slot].synchronize()
            device[slot].copy_(host[slot], non_blocking=True)
            copied[slot].record(stream)
            done += 1
        stream.synchronize()
    rates.append(done * SIZE / (time.perf_counter() - start) / 1e9)


def memcpy(stop, rates, seed):
    host, place, done, start = pinned(2), seed, 0, time.perf_counter()
    while not stop.is_set():
        place = (place * 1103515245 + 12345) % (1 << 31)
        at = source.data_ptr() + place % (2048 * MIB - SIZE)
        libc.memcpy(ctypes.c_void_p(host[done % 2].data_ptr()), ctypes.c_void_p(at), ctypes.c_size_t(SIZE))
        done += 1
    rates.append(done * SIZE / (time.perf_counter() - start) / 1e9)


def together(threads, wires, seconds=1.5):
    stop, wire_rates, copy_rates = threading.Event(), [], []
    gpus = range(torch.cuda.device_count() if wires else 0)
    running = [threading.Thread(target=copies, args=(stop, wire_rates, gpu)) for gpu in gpus]
    running += [threading.Thread(target=memcpy, args=(stop, copy_rates, seed)) for seed in range(threads)]
    for thread in running:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in running:
        thread.join()
    return sum(wire_rates), sum(copy_rates)


together(0, True, 0.5)
alone = together(0, True)[0]
print("threads | copies alone | memcpy alone | copies and memcpy at once")
for threads in (4, 8, 16, 24, 30):
    both = together(threads, True)
    print(f"{threads} | {alone:.1f} | {together(threads, False)[1]:.1f} | {both[0]:.1f} and {both[1]:.1f}")
