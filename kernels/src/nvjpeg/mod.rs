//! nvJPEG, loaded at run time: batches of JPEG files decoded on a GPU.

mod library;
mod staging;

use std::ffi::{c_int, c_uint};
use std::ptr;
use std::time::{Duration, Instant};

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::{Backend, Stream, ViewMut};
use feedline_images::{Chroma, Size};

use self::library::{Calls, Image, Pointer, Status};
pub(crate) use self::staging::Staging;
use crate::host::parallel::each;

/// `nvjpegBackend_t`: the JPEG engines of the chip, and a decoder in kernels.
const HARDWARE: c_int = 3;
const GPU_HYBRID: c_int = 2;
/// `nvjpegOutputFormat_t`: red, green and blue of a pixel follow each other.
const RGB_INTERLEAVED: c_int = 5;
/// Chroma between its samples is interpolated, as libjpeg-turbo does; without this flag it is repeated.
const INTERPOLATED: c_uint = 1 << 5;

/// `nvjpegChromaSubsampling_t`: how many pixels share a sample of chroma.
type Sampling = c_int;

/// A file that the decoder takes, and where its pixels go: made by [`Nvjpeg::accept`] only, so that its size
/// is the one that the library writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File<'a> {
    bytes: &'a [u8],
    sampling: Sampling,
    width: usize,
    height: usize,
    /// Where its pixels begin.
    first: usize,
}

impl File<'_> {
    /// Files are decoded fastest in this order. The engines work on several at a time, which should take
    /// equally long: 24,600 instead of 20,100 pictures/s (H200, chroma not interpolated).
    pub(crate) fn order(&self) -> impl Ord + use<> {
        (self.sampling, self.width, self.height)
    }

    /// Where its pixels go, in memory that begins at `address`.
    fn image(&self, address: u64) -> Image {
        let mut image = Image { channel: [ptr::null_mut(); 4], pitch: [0; 4] };
        image.channel[0] = (address + self.first as u64) as *mut u8;
        image.pitch[0] = 3 * self.width;
        image
    }
}

/// Files in pinned memory, to be decoded.
pub(crate) struct Loaded<'a> {
    files: &'a [File<'a>],
    /// Where each lies in `pinned`.
    places: Vec<*const u8>,
    pinned: Staging,
}

/// Where the time of decoding goes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// The calling thread, while files are copied into pinned memory.
    pub(crate) load: Duration,
    /// The calling thread, in the library.
    pub(crate) queue: Duration,
    /// The calling thread, until the device has decoded.
    pub(crate) wait: Duration,
}

/// A decoder for one stream.
pub(crate) struct Nvjpeg {
    calls: Calls,
    stream: Stream,
    handle: Pointer,
    /// One for each sampling. A call with files of several samplings takes four times as long where chroma is
    /// interpolated (H200, CUDA 13).
    states: Vec<(Sampling, Pointer)>,
    /// The header that was read last.
    header: Pointer,
    description: String,
    /// Memory for the files of a batch.
    pinned: Option<Staging>,
    spent: Spent,
}

// SAFETY: nvJPEG's handles may be used by any thread, one at a time, and only `&mut self` uses them.
unsafe impl Send for Nvjpeg {}

impl Nvjpeg {
    /// Opens a decoder on the chip's JPEG engines, or in kernels where it has none; `chroma` as on the CPU.
    ///
    /// # Errors
    /// `Unavailable` without the library, or on a device that is not CUDA; a device failure.
    pub(crate) fn open(stream: &Stream, chroma: Chroma) -> Result<Self> {
        let Some(cuda) = stream.cuda_backend() else {
            let why = "JPEG is decoded on CUDA devices only: open one, or decode on the CPU";
            return Err(Error::new(ErrorKind::Unavailable, why));
        };
        let calls = Calls::load()?;
        cuda.bind()?;
        let mut handle = ptr::null_mut();
        let flags = flags(chroma);
        // SAFETY: null allocators mean the library's own; `handle` is written where it succeeds.
        let mut create =
            |backend| unsafe { (calls.create)(backend, ptr::null(), ptr::null(), flags, &mut handle) };
        let is_hardware = create(HARDWARE) == 0;
        if !is_hardware {
            answered(create(GPU_HYBRID), "open a decoder")?;
        }
        let stream = stream.clone();
        // From here on `drop` closes what was opened.
        let mut opened = Self {
            calls,
            stream,
            handle,
            states: Vec::new(),
            header: ptr::null_mut(),
            description: "nvJPEG in kernels".to_owned(),
            pinned: None,
            spent: Spent::default(),
        };
        // SAFETY: the handle was just created, and the header is written where it succeeds.
        answered(unsafe { (opened.calls.header_create)(handle, &mut opened.header) }, "create a header")?;
        if is_hardware {
            let (mut engines, mut cores) = (0, 0);
            // The call takes milliseconds.
            // SAFETY: the handle is alive; both numbers are written.
            let told = unsafe { (opened.calls.engines)(handle, &mut engines, &mut cores) };
            let cores = if told == 0 { format!(", {engines} x {cores} cores") } else { String::new() };
            opened.description = format!("nvJPEG on the chip's JPEG engines{cores}");
        }
        Ok(opened)
    }

    /// What decodes, for logs.
    pub(crate) fn describe(&self) -> &str {
        &self.description
    }

    /// Where the time went.
    pub(crate) fn spent(&self) -> Spent {
        self.spent
    }

    /// The file, if the decoder takes it and finds a picture of that size in it; its pixels begin at `first`.
    ///
    /// Called by one thread: the library reads one header at a time, and 8 threads are no faster than one.
    pub(crate) fn accept<'a>(&mut self, bytes: &'a [u8], size: Size, first: usize) -> Option<File<'a>> {
        let Self { calls, handle, header, stream, .. } = self;
        // Without the device, which a later call reports, all files are for the CPU.
        stream.cuda_backend()?.bind().ok()?;
        let (mut width, mut height, mut components, mut sampling, mut refused) = (0, 0, 0, 0, 1);
        // SAFETY: the handles are alive, and the bytes are only read during the call.
        let parsed = unsafe { (calls.parse)(*handle, bytes.as_ptr(), bytes.len(), *header) };
        if parsed != 0 {
            return None;
        }
        // SAFETY: the header was parsed; both numbers are written.
        let sized = unsafe { (calls.size)(*header, &mut width, &mut height) };
        // SAFETY: as above.
        let counted = unsafe { (calls.components)(*header, &mut components) };
        // SAFETY: as above.
        let sampled = unsafe { (calls.sampling)(*header, &mut sampling) };
        // SAFETY: as above; 0 means that the batched decoder takes the file.
        let asked = unsafe { (calls.supported)(*handle, *header, &mut refused) };
        let is_taken = [sized, counted, sampled, asked, refused] == [0; 5] && matches!(components, 1 | 3);
        let (height, width) = (height as usize, width as usize);
        let is_taken = is_taken && (height, width) == (size.height, size.width);
        is_taken.then_some(File { bytes, sampling, width, height, first })
    }

    /// Copies `files` into pinned memory, on the pool: from other memory the driver would copy them one by
    /// one on the calling thread.
    ///
    /// # Errors
    /// A device failure.
    pub(crate) fn load<'a>(&mut self, files: &'a [File<'a>]) -> Result<Loaded<'a>> {
        let start = Instant::now();
        let bytes = files.iter().map(|file| file.bytes.len()).sum::<usize>();
        let mut pinned = match self.pinned.take().filter(|pinned| pinned.bytes >= bytes) {
            Some(pinned) => pinned,
            None => Staging::new(&self.stream, bytes + bytes / 4)?,
        };
        let (mut parts, mut places) = (Vec::new(), Vec::new());
        let mut rest = pinned.bytes_mut();
        for file in files {
            let part;
            (part, rest) = rest.split_at_mut(file.bytes.len());
            places.push(part.as_ptr());
            parts.push((part, file.bytes));
        }
        each(parts.into_iter(), |(to, from): (&mut [u8], &[u8])| to.copy_from_slice(from));
        self.spent.load += start.elapsed();
        Ok(Loaded { files, places, pinned })
    }

    /// Decodes the first `count` files to `pixels`: RGB, row after row, from the place that each file names.
    /// Drops `turn` once another decoder may call the library. Blocks until the files are decoded. Returns
    /// whether they were: a file with damaged data fails all of them.
    ///
    /// # Errors
    /// `Config` for a place outside `pixels`; a device failure.
    pub(crate) fn decode<T>(
        &mut self,
        loaded: Loaded<'_>,
        count: usize,
        mut pixels: ViewMut<'_, u8>,
        turn: T,
    ) -> Result<bool> {
        let Loaded { files, places, pinned } = loaded;
        let files = &files[..count.min(files.len())];
        let behind = files.iter().map(|file| {
            let bytes = file.height.checked_mul(file.width)?.checked_mul(3)?;
            file.first.checked_add(bytes)
        });
        if !behind.into_iter().all(|behind| behind.is_some_and(|behind| behind <= pixels.len())) {
            return Err(Error::new(ErrorKind::Config, "a picture lies outside of the memory for pixels"));
        }
        if !files.is_sorted_by_key(|file| file.sampling) {
            return Err(Error::new(ErrorKind::Config, "files of one sampling do not follow each other"));
        }
        let start = Instant::now();
        let address = pixels.address().0;
        let stream = self.stream.clone();
        let done = stream.submit("nvjpeg", &[], &[pixels.reborrow().into()], |to| {
            if to.recorded {
                let why = "JPEG cannot be decoded in a recorded step: decode before it";
                return Err(Error::new(ErrorKind::Config, why));
            }
            if let Some(cuda) = stream.cuda_backend() {
                cuda.bind()?;
            }
            let mut places = &places[..];
            for files in files.chunk_by(|file, next| file.sampling == next.sampling) {
                let state = self.state(files[0].sampling)?;
                let lengths: Vec<usize> = files.iter().map(|file| file.bytes.len()).collect();
                let mut images: Vec<_> = files.iter().map(|file| file.image(address)).collect();
                let count = files.len() as c_int;
                // SAFETY: the handles are alive, and the state is idle: each is used once (the files are
                // sorted, checked above), and the stream is drained below.
                let ready = unsafe { (self.calls.initialize)(self.handle, state, count, 1, RGB_INTERLEAVED) };
                answered(ready, "prepare a batch")?;
                // SAFETY: `pinned` holds a copy of each of the `count` files until the stream is drained
                // below; each picture lies within `pixels` (checked above), in the size that the library
                // itself parsed (`accept`).
                let status = unsafe {
                    (self.calls.decode)(
                        self.handle,
                        state,
                        places.as_ptr(),
                        lengths.as_ptr(),
                        images.as_mut_ptr(),
                        to.stream.0 as Pointer,
                    )
                };
                if status != 0 {
                    return Ok(false);
                }
                places = &places[files.len()..];
            }
            Ok(true)
        });
        drop(turn);
        self.spent.queue += start.elapsed();
        let start = Instant::now();
        // The files and the states may be used until then, also where a call failed.
        stream.synchronize()?;
        self.spent.wait += start.elapsed();
        self.pinned = Some(pinned);
        done
    }

    /// The state for files of a sampling.
    fn state(&mut self, sampling: Sampling) -> Result<Pointer> {
        if let Some((_, state)) = self.states.iter().find(|(of, _)| *of == sampling) {
            return Ok(*state);
        }
        let mut state = ptr::null_mut();
        // SAFETY: the handle is alive, and the state is written where it succeeds.
        answered(unsafe { (self.calls.state_create)(self.handle, &mut state) }, "create a state")?;
        self.states.push((sampling, state));
        Ok(state)
    }
}

impl Drop for Nvjpeg {
    fn drop(&mut self) {
        if let Err(error) = self.stream.synchronize() {
            // The device may still use the states: they are leaked.
            return self.stream.report(error);
        }
        let Calls { header_destroy, state_destroy, destroy, .. } = &self.calls;
        let states = self.states.iter().map(|(_, state)| (state_destroy, *state));
        for (close, handle) in states.chain([(header_destroy, self.header), (destroy, self.handle)]) {
            if !handle.is_null() {
                // SAFETY: created by the library, closed once; nothing uses it any more.
                let _ = unsafe { close(handle) };
            }
        }
    }
}

fn flags(chroma: Chroma) -> c_uint {
    match chroma {
        Chroma::Interpolated => INTERPOLATED,
        Chroma::Nearest => 0,
    }
}

fn answered(status: Status, what: &str) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Device, format!("nvJPEG cannot {what}: status {status}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit 5 is `NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION` of `nvjpeg.h`.
    #[test]
    fn chroma_is_interpolated_only_where_that_is_asked_for() {
        assert_eq!((flags(Chroma::Interpolated), flags(Chroma::Nearest)), (0b10_0000, 0));
    }

    #[test]
    fn a_device_that_is_not_cuda_is_refused() {
        let stream = feedline_device::Device::host().stream().unwrap();
        assert_eq!(
            Nvjpeg::open(&stream, Chroma::Nearest).err().map(|error| error.kind()),
            Some(ErrorKind::Unavailable)
        );
        assert_eq!(Staging::new(&stream, 8).err().map(|error| error.kind()), Some(ErrorKind::Unavailable));
    }
}
