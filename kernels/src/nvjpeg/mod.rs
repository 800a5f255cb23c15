//! nvJPEG, loaded at run time: batches of JPEG files decoded on a GPU.

mod library;
mod staging;

use std::ffi::{c_int, c_uint};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::{Backend, Stream, ViewMut};
use feedline_images::Chroma;

use self::library::{Calls, Image, Pointer, Status};
pub(crate) use self::staging::Staging;
use crate::host::parallel::{beside, threads};

/// `nvjpegBackend_t`: the JPEG engines of the chip, and a decoder in kernels.
const HARDWARE: c_int = 3;
const GPU_HYBRID: c_int = 2;
/// `nvjpegOutputFormat_t`: red, green and blue of a pixel follow each other.
const RGB_INTERLEAVED: c_int = 5;
/// Chroma between its samples is interpolated, as libjpeg-turbo does; without this flag it is repeated.
const INTERPOLATED: c_uint = 1 << 5;

/// The most threads that read headers, and the fewest files for which one is started.
const MOST_READERS: usize = 8;
const LEAST_FILES: usize = 8;

/// A file, the height and width that its header was found to state, and where its pixels begin.
pub(crate) type Asked<'a> = (&'a [u8], (usize, usize), usize);

/// Reads headers of files; for one thread at a time.
struct Reader {
    handle: Pointer,
    header: Pointer,
}

// SAFETY: nvJPEG's handle may be used by several threads at once, a header by one, and only `&mut self` uses
// it.
unsafe impl Send for Reader {}

impl Reader {
    /// Height and width of a file that the decoder takes; `None` for one that it refuses.
    fn size(&mut self, calls: &Calls, bytes: &[u8]) -> Option<(usize, usize)> {
        let (mut width, mut height, mut components, mut refused) = (0, 0, 0, 1);
        // SAFETY: the handles are alive, and the bytes are only read during the call.
        let parsed = unsafe { (calls.parse)(self.handle, bytes.as_ptr(), bytes.len(), self.header) };
        if parsed != 0 {
            return None;
        }
        // SAFETY: the header was parsed; both numbers are written.
        let sized = unsafe { (calls.size)(self.header, &mut width, &mut height) };
        // SAFETY: as above.
        let counted = unsafe { (calls.components)(self.header, &mut components) };
        // SAFETY: as above; 0 means that the batched decoder takes the file.
        let asked = unsafe { (calls.supported)(self.handle, self.header, &mut refused) };
        let is_taken = [sized, counted, asked, refused] == [0; 4] && matches!(components, 1 | 3);
        is_taken.then_some((height as usize, width as usize))
    }
}

/// A file that the decoder takes, and where its pixels go: made by [`Nvjpeg::accept`] only, so that its size
/// is the one that the library writes.
#[derive(Clone, Copy)]
pub(crate) struct File<'a> {
    bytes: &'a [u8],
    height: usize,
    width: usize,
    /// Where its pixels begin.
    first: usize,
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
    state: Pointer,
    /// One for each thread that reads headers.
    readers: Vec<Reader>,
    description: String,
    /// Held in the library's call that decodes. The engines serve one call after the other, and two calls at
    /// a time make each other slower: 18,400 pictures/s by two threads, 19,600 in turns (H200, 2026-11-23,
    /// bench `jpeg-gpu`, chroma not interpolated).
    turn: Arc<Mutex<()>>,
    /// Files of the last batch.
    batch: usize,
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
        let null = ptr::null_mut();
        let stream = stream.clone();
        // From here on `drop` closes what was opened.
        let mut opened = Self {
            calls,
            stream,
            handle,
            state: null,
            readers: Vec::new(),
            description: "nvJPEG in kernels".to_owned(),
            turn: Arc::default(),
            batch: 0,
            pinned: None,
            spent: Spent::default(),
        };
        // SAFETY: the handle was just created, and the state is written where it succeeds.
        answered(unsafe { (opened.calls.state_create)(handle, &mut opened.state) }, "create a state")?;
        for _ in 0..threads().clamp(1, MOST_READERS) {
            let mut header = ptr::null_mut();
            // SAFETY: as above.
            answered(unsafe { (opened.calls.header_create)(handle, &mut header) }, "create a header")?;
            opened.readers.push(Reader { handle, header });
        }
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

    /// Lets this decoder and those that share `turn` decode one after the other.
    pub(crate) fn take_turns(&mut self, turn: &Arc<Mutex<()>>) {
        self.turn = turn.clone();
    }

    /// What decodes, for logs.
    pub(crate) fn describe(&self) -> &str {
        &self.description
    }

    /// Where the time went.
    pub(crate) fn spent(&self) -> Spent {
        self.spent
    }

    /// For each file that is asked for: the file, if the decoder takes it and finds a picture of that height
    /// and width in it. The headers are read on the pool.
    pub(crate) fn accept<'a>(&mut self, asked: &[Option<Asked<'a>>]) -> Vec<Option<File<'a>>> {
        let Self { calls, stream, readers, .. } = self;
        let mut files = vec![None; asked.len()];
        let most = asked.len().div_ceil(readers.len().max(1)).max(LEAST_FILES);
        let parts = readers.iter_mut().zip(asked.chunks(most)).zip(files.chunks_mut(most)).collect();
        let accept = |((reader, asked), files): ((&mut Reader, &[Option<Asked<'a>>]), &mut [_])| {
            // Without the device, which a later call reports, all files are for the CPU.
            if stream.cuda_backend().is_none_or(|cuda| cuda.bind().is_err()) {
                return;
            }
            for (file, asked) in files.iter_mut().zip(asked) {
                let Some((bytes, (height, width), first)) = *asked else { continue };
                let found = reader.size(calls, bytes);
                *file = (found == Some((height, width))).then_some(File { bytes, height, width, first });
            }
        };
        beside(parts, accept, || ());
        files
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
        beside(parts, |(to, from)| to.copy_from_slice(from), || ());
        self.spent.load += start.elapsed();
        Ok(Loaded { files, places, pinned })
    }

    /// Decodes files to `pixels`: RGB, row after row, from the place that each file names. Blocks until they
    /// are decoded. Returns whether they were: a file with damaged data fails its whole batch.
    ///
    /// # Errors
    /// `Config` for a place outside `pixels`; a device failure.
    pub(crate) fn decode(&mut self, loaded: Loaded<'_>, mut pixels: ViewMut<'_, u8>) -> Result<bool> {
        let Loaded { files, places, pinned } = loaded;
        let behind = files.iter().map(|file| {
            let bytes = file.height.checked_mul(file.width)?.checked_mul(3)?;
            file.first.checked_add(bytes)
        });
        if !behind.into_iter().all(|behind| behind.is_some_and(|behind| behind <= pixels.len())) {
            return Err(Error::new(ErrorKind::Config, "a picture lies outside of the memory for pixels"));
        }
        if files.is_empty() {
            return Ok(true);
        }
        let start = Instant::now();
        let address = pixels.address().0;
        let lengths: Vec<usize> = files.iter().map(|file| file.bytes.len()).collect();
        let mut images: Vec<Image> = files
            .iter()
            .map(|file| {
                let mut image = Image { channel: [ptr::null_mut(); 4], pitch: [0; 4] };
                image.channel[0] = (address + file.first as u64) as *mut u8;
                image.pitch[0] = 3 * file.width;
                image
            })
            .collect();
        let stream = self.stream.clone();
        let done = stream.submit("nvjpeg", &[], &[pixels.reborrow().into()], |to| {
            if to.recorded {
                let why = "JPEG cannot be decoded in a recorded step: decode before it";
                return Err(Error::new(ErrorKind::Config, why));
            }
            if let Some(cuda) = stream.cuda_backend() {
                cuda.bind()?;
            }
            let Self { calls, handle, state, turn, .. } = self;
            if self.batch != files.len() {
                let count = files.len() as c_int;
                // SAFETY: the handles are alive, and nothing is being decoded: `decode` waits.
                let ready = unsafe { (calls.initialize)(*handle, *state, count, 1, RGB_INTERLEAVED) };
                answered(ready, "prepare a batch")?;
                self.batch = files.len();
            }
            let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: `pinned` holds a copy of each of the `batch` files until the stream is drained below;
            // each picture lies within `pixels` (checked above), in the size that the library itself parsed
            // (`accept`).
            let status = unsafe {
                (calls.decode)(
                    *handle,
                    *state,
                    places.as_ptr(),
                    lengths.as_ptr(),
                    images.as_mut_ptr(),
                    to.stream.0 as Pointer,
                )
            };
            Ok(status == 0)
        });
        if !matches!(done, Ok(true)) {
            // The state may be in the middle of a batch.
            self.batch = 0;
        }
        self.spent.queue += start.elapsed();
        let start = Instant::now();
        // The files and the state may be used until then, also where the call failed.
        stream.synchronize()?;
        self.spent.wait += start.elapsed();
        self.pinned = Some(pinned);
        done
    }
}

impl Drop for Nvjpeg {
    fn drop(&mut self) {
        if let Err(error) = self.stream.synchronize() {
            // The device may still use the states: they are leaked.
            return self.stream.report(error);
        }
        let Calls { header_destroy, state_destroy, destroy, .. } = &self.calls;
        let headers = self.readers.iter().map(|reader| (header_destroy, reader.header));
        for (close, handle) in headers.chain([(state_destroy, self.state), (destroy, self.handle)]) {
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
