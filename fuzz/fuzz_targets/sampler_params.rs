#![no_main]

feedline_fuzz::target!(sampler_params);
