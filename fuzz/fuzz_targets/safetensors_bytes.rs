#![no_main]

feedline_fuzz::target!(safetensors_bytes);
