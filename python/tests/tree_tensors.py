"""A tensor of its own type, for `test_tree.py`."""

import torch


class Boxes(torch.Tensor):
    """As torchvision has it."""

    format: str
