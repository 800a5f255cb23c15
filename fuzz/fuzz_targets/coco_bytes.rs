#![no_main]

feedline_fuzz::target!(coco_bytes);
