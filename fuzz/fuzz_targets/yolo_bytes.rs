#![no_main]

feedline_fuzz::target!(yolo_bytes);
