"""Batches of photographs with boxes by feedline and by torchvision v2 in DataLoader, two workers each, in turns."""
import json, os, tempfile, time
import numpy as np, torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import v2
import feedline
from feedline import transforms as T

torch.set_num_threads(1)
COUNT, BOXES, BATCH, SIDE = 240, 7, 16, 320
folder = tempfile.mkdtemp()
os.makedirs(folder + "/photographs")
chance = np.random.default_rng(7)
images, boxes = [], []
for i in range(COUNT):
    small = chance.integers(0, 256, (30, 40, 3), np.uint8)
    name = f"{i:04}.jpg"
    Image.fromarray(small).resize((500, 375), Image.BICUBIC).save(f"{folder}/photographs/{name}", quality=90)
    images.append({"id": i, "file_name": name, "width": 500, "height": 375})
    for _ in range(BOXES):
        x, y = chance.random(2) * [400, 280]
        w, h = chance.random(2) * [100, 90] + 2
        bbox = [x, y, min(w, 500 - x), min(h, 375 - y)]
        boxes.append({"id": len(boxes), "image_id": i, "category_id": 1, "bbox": bbox, "area": w * h, "iscrowd": 0})
coco = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "a"}]}
with open(folder + "/boxes.json", "w") as file:
    json.dump(coco, file)

steps = [T.RandomResizedCrop(SIDE), T.RandomHorizontalFlip(), T.Normalize()]
data = feedline.images(folder + "/photographs", steps, annotations=folder + "/boxes.json")
ours = feedline.Loader(data, BATCH, shuffle=7, workers=2, framework="torch")


class Photographs(torch.utils.data.Dataset):
    def __init__(self):
        self.boxes = [[] for _ in images]
        for one in boxes:
            self.boxes[one["image_id"]].append(one["bbox"] + [one["category_id"]])
        mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
        self.transform = v2.Compose(
            [
                v2.ToImage(), v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip(),
                v2.SanitizeBoundingBoxes(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std),
            ]
        )  # fmt: skip

    def __len__(self):
        return COUNT

    def __getitem__(self, i):
        picture, own = Image.open(f"{folder}/photographs/{i:04}.jpg").convert("RGB"), torch.tensor(self.boxes[i])
        found = tv_tensors.BoundingBoxes(own[:, :4], format="XYWH", canvas_size=(375, 500))
        return self.transform(picture, {"boxes": found, "labels": own[:, 4]})


def collate(samples):
    return torch.stack([picture for picture, _ in samples]), [target for _, target in samples]


theirs = torch.utils.data.DataLoader(
    Photographs(), BATCH, shuffle=True, num_workers=2, collate_fn=collate, persistent_workers=True
)


def rate(batches):
    start = time.perf_counter()
    return sum(1 for _ in batches) / (time.perf_counter() - start)


for epoch in range(4):
    a, b = rate(ours.epoch(epoch)), rate(theirs)
    print(f"feedline {a:.1f} batches/s, DataLoader {b:.1f}, ratio {a / b:.2f}")
