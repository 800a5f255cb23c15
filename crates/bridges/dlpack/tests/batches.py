"""A consumer of DLPack that is not feedline's: NumPy on the host, PyTorch on a GPU.

    python3 batches.py LIBRARY cpu|cuda STEPS

Prints "ok" and what it has seen, or "not run" and why. LIBRARY is the example `dlpack_batches`.
"""

import ctypes
import sys

WIDTH, ROWS, DEPTH = 64, 16, 4
API = ctypes.pythonapi
API.PyCapsule_New.restype = ctypes.py_object
API.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
API.PyCapsule_GetPointer.restype = ctypes.c_void_p
API.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
API.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
# Kept for ever: a capsule does not copy its name.
NAME, USED = b"dltensor_versioned", b"used_dltensor_versioned"


def load(path):
    library = ctypes.CDLL(path)
    library.batches_open.restype = library.batches_tensor.restype = ctypes.c_void_p
    library.batches_error.restype = ctypes.c_char_p
    library.batches_next.restype = ctypes.c_bool
    library.tensor_sum.restype = ctypes.c_double
    library.batches_tensor.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_bool]
    for name in ("next", "release", "error", "close"):
        getattr(library, f"batches_{name}").argtypes = [ctypes.c_void_p]
    library.tensor_sum.argtypes = [ctypes.c_void_p]
    return library


class Field:
    """A field of the current batch, as the array API asks for it."""

    def __init__(self, loader, index):
        self.loader, self.index = loader, index

    def __dlpack_device__(self):
        return (2, 0) if self.loader.is_cuda else (1, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        assert max_version is not None and max_version[0] >= 1, f"max_version {max_version}"
        pointer = self.loader.library.batches_tensor(self.loader.raw, self.index, stream or 0, stream is None)
        if not pointer:
            raise BufferError(self.loader.error())
        return API.PyCapsule_New(pointer, NAME, None)


class Loader:
    def __init__(self, library, is_cuda):
        self.library, self.is_cuda = library, is_cuda
        self.raw = library.batches_open(is_cuda)
        assert self.raw, "the loader does not open"

    def error(self):
        return self.library.batches_error(self.raw).decode()

    def next(self):
        if not self.library.batches_next(self.raw):
            raise RuntimeError(self.error())
        return Field(self, 0), Field(self, 1)

    def release(self):
        self.library.batches_release(self.raw)

    def close(self):
        self.library.batches_close(self.raw)


def on_the_host(library, steps):
    try:
        import numpy
    except ImportError:
        return "not run: dlpack and numpy (numpy is not installed)"
    if tuple(map(int, numpy.__version__.split(".")[:2])) < (2, 1):
        return f"not run: dlpack and numpy ({numpy.__version__} does not read versioned tensors)"
    loader, columns = Loader(library, False), numpy.arange(WIDTH)
    wanted = lambda ids: ((ids[:, None] * WIDTH + columns) % (1 << 20)).astype(numpy.float32)
    kept = None
    for step in range(steps):
        ids, numbers = map(numpy.from_dlpack, loader.next())
        loader.release()  # the arrays outlive the batch
        assert ids.dtype == numpy.int64 and numbers.shape == (ROWS, WIDTH) and not numbers.flags.writeable
        assert (numbers == wanted(ids)).all(), f"wrong numbers in step {step}"
        if step % 10 == 0:
            kept = (ids, numbers, ids.copy())
        # A batch that was kept for several steps still holds its own bytes.
        intact = (kept[0] == kept[2]).all() and (kept[1] == wanted(kept[2])).all()
        assert intact, f"overwritten before step {step}"
    _, field = loader.next()
    try:
        field.__dlpack__(stream=7, max_version=(1, 0))
        raise AssertionError("a stream on the host is accepted")
    except BufferError as error:
        assert "stream=None" in str(error), error
    held = []
    try:
        for _ in range(2 * DEPTH + 2):
            held.append(numpy.from_dlpack(loader.next()[1]))
            loader.release()
        raise AssertionError("arrays that are kept for ever are overwritten")
    except RuntimeError as error:
        assert "held" in str(error), error
    # Imports an array of NumPy's that has strides.
    array = numpy.arange(24, dtype=numpy.float32).reshape(4, 6)[:, ::2]
    capsule = array.__dlpack__(max_version=(1, 0))
    pointer = API.PyCapsule_GetPointer(capsule, NAME)
    API.PyCapsule_SetName(capsule, USED)
    assert library.tensor_sum(pointer) == array.sum()
    del held, kept, ids, numbers
    loader.close()
    return f"ok: {steps} batches, numpy {numpy.__version__}"


def on_a_gpu(library, steps):
    try:
        import torch
    except ImportError:
        return "not run: dlpack and PyTorch on a GPU (PyTorch is not installed)"
    if not torch.cuda.is_available():
        return "not run: dlpack and PyTorch on a GPU (PyTorch sees no GPU)"
    loader, columns = Loader(library, True), torch.arange(WIDTH, device="cuda")
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(steps // 2):
                ids, numbers = map(torch.from_dlpack, loader.next())
                loader.release()
                torch.cuda._sleep(200_000)  # the check runs long after the batch was released
                wrong += (numbers != ((ids[:, None] * WIDTH + columns) % (1 << 20)).float()).sum()
                del ids, numbers
        torch.cuda.current_stream().wait_stream(stream)
    assert wrong.item() == 0, f"{wrong.item()} wrong numbers"
    loader.close()
    return f"ok: {steps} batches, torch {torch.__version__}"


if __name__ == "__main__":
    path, kind, steps = sys.argv[1:]
    print((on_a_gpu if kind == "cuda" else on_the_host)(load(path), int(steps)))
