//! nvJPEG, loaded at run time: batches of JPEG files decoded on a GPU.

mod library;

use std::ffi::{c_int, c_uint};
use std::ptr;
use std::time::{Duration, Instant};

use self::library::{Functions, Image, Pointer, Status};
use feedline_core::{Error, ErrorKind, Result};
use feedline_device::{Backend, Stream, ViewMut, submit};
use feedline_images::{Chroma, Size};

/// `nvjpegBackend_t`: the JPEG engines of the chip, and a decoder in kernels.
const HARDWARE: c_int = 3;
const GPU_HYBRID: c_int = 2;
/// `nvjpegOutputFormat_t`: interleaved red, green and blue.
const RGB_INTERLEAVED: c_int = 5;
/// Interpolates chroma, as libjpeg-turbo does. Without this flag, each sample is repeated.
const INTERPOLATED: c_uint = 1 << 5;

/// `nvjpegChromaSubsampling_t`: the number of pixels per sample of chroma.
type Sampling = c_int;

/// A file that nvJPEG can decode, and the offset of its pixels. Only [`Nvjpeg::accept`] creates it. So its
/// size is the size that the library has parsed and will write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File<'a> {
    bytes: &'a [u8],
    sampling: Sampling,
    width: usize,
    height: usize,
    /// The offset of the file's pixels, in bytes.
    first: usize,
}

impl<'a> File<'a> {
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The sort key of a file in its batch. The engines decode several files at a time, and are fastest if
    /// all take equally long: 24,600 instead of 20,100 pictures/s (H200, chroma not interpolated).
    pub(crate) fn order(&self) -> impl Ord + use<> {
        (self.sampling, self.width, self.height)
    }

    /// The target of the file's pixels, in memory that begins at `address`.
    fn image(&self, address: u64) -> Image {
        let mut image = Image { channel: [ptr::null_mut(); 4], pitch: [0; 4] };
        image.channel[0] = (address + self.first as u64) as *mut u8;
        image.pitch[0] = 3 * self.width;
        image
    }
}

/// The time of the calling thread, by activity.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// In calls of the library.
    pub(crate) submit: Duration,
    /// Waiting for the device to decode.
    pub(crate) wait: Duration,
}

/// A decoder for one stream.
pub(crate) struct Nvjpeg {
    calls: Functions,
    stream: Stream,
    handle: Pointer,
    /// One state per sampling. A call with files of several samplings takes four times as long if chroma is
    /// interpolated (H200, CUDA 13).
    states: Vec<(Sampling, Pointer)>,
    /// The library's memory for the header that is being parsed.
    header: Pointer,
    description: String,
    times: Times,
}

// SAFETY: nvJPEG's handles may be used by any thread, one at a time, and only `&mut self` uses them.
unsafe impl Send for Nvjpeg {}

impl Nvjpeg {
    /// Opens a decoder on the JPEG engines of the chip, or in kernels if the chip has none. `chroma` has the
    /// same meaning as on the CPU.
    ///
    /// # Errors
    /// `Unavailable` without the library, or on a device that is not CUDA; a device failure.
    pub(crate) fn open(stream: &Stream, chroma: Chroma) -> Result<Self> {
        let Some(cuda) = stream.cuda_backend() else {
            let why = "JPEG is decoded on CUDA devices only: open one, or decode on the CPU";
            return Err(Error::new(ErrorKind::Unavailable, why));
        };
        let calls = Functions::load()?;
        cuda.bind()?;
        let mut handle = ptr::null_mut();
        let flags = flags(chroma);
        // SAFETY: null allocators mean the library's own; the call writes `handle` on success.
        let mut create =
            |backend| unsafe { (calls.create)(backend, ptr::null(), ptr::null(), flags, &mut handle) };
        let is_hardware = create(HARDWARE) == 0;
        if !is_hardware {
            check_status(create(GPU_HYBRID), "open a decoder")?;
        }
        let stream = stream.clone();
        // From here on `drop` destroys the handles.
        let mut opened = Self {
            calls,
            stream,
            handle,
            states: Vec::new(),
            header: ptr::null_mut(),
            description: "nvJPEG in kernels".to_owned(),
            times: Times::default(),
        };
        // SAFETY: the handle was just created, and the call writes the header on success.
        check_status(unsafe { (opened.calls.header_create)(handle, &mut opened.header) }, "create a header")?;
        if is_hardware {
            let (mut engines, mut cores) = (0, 0);
            // The call takes milliseconds.
            // SAFETY: the handle is alive; both numbers are written.
            let status = unsafe { (opened.calls.engines)(handle, &mut engines, &mut cores) };
            let cores = if status == 0 { format!(", {engines} x {cores} cores") } else { String::new() };
            opened.description = format!("nvJPEG on the chip's JPEG engines{cores}");
        }
        Ok(opened)
    }

    /// Describes the decoder, for logs.
    pub(crate) fn describe(&self) -> &str {
        &self.description
    }

    pub(crate) fn times(&self) -> Times {
        self.times
    }

    /// Parses the header of a file. Returns the file if nvJPEG can decode it to a picture of `size`. The
    /// file's pixels are at offset `first`.
    ///
    /// Only one thread calls this: the library parses one header at a time, so 8 threads are no faster.
    pub(crate) fn accept<'a>(&mut self, bytes: &'a [u8], size: Size, first: usize) -> Option<File<'a>> {
        let Self { calls, handle, header, stream, .. } = self;
        // If the device is lost, a later call reports it.
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

    /// Decodes `files` to `pixels`, as rows of RGB from the offset of each file on. Drops `entry` after the
    /// last call of the library, so that another decoder may call the library. Blocks until the files are
    /// decoded. Returns false if the library refuses the data of one file. All files have then failed.
    ///
    /// The device reads files in pinned memory in place. The driver copies other files one by one, on the
    /// calling thread.
    ///
    /// # Errors
    /// `Config` for a picture outside `pixels`; a device failure.
    pub(crate) fn decode<T>(
        &mut self,
        files: &[File<'_>],
        mut pixels: ViewMut<'_, u8>,
        entry: T,
    ) -> Result<bool> {
        let mut ends = files.iter().map(|file| {
            let bytes = file.height.checked_mul(file.width)?.checked_mul(3)?;
            file.first.checked_add(bytes)
        });
        if !ends.all(|end| end.is_some_and(|end| end <= pixels.len())) {
            return Err(Error::new(ErrorKind::Config, "a picture is outside the memory for pixels"));
        }
        if !files.is_sorted_by_key(|file| file.sampling) {
            return Err(Error::new(ErrorKind::Config, "the files are not sorted by sampling"));
        }
        let start = Instant::now();
        let address = pixels.address().0;
        let stream = self.stream.clone();
        let done = submit(&stream, "nvjpeg", &[], &[pixels.reborrow().into()], |to| {
            if to.recorded {
                let why = "JPEG cannot be decoded in a recorded step: decode before it";
                return Err(Error::new(ErrorKind::Config, why));
            }
            if let Some(cuda) = stream.cuda_backend() {
                cuda.bind()?;
            }
            for files in files.chunk_by(|file, next| file.sampling == next.sampling) {
                let state = self.state(files[0].sampling)?;
                let addresses: Vec<*const u8> = files.iter().map(|file| file.bytes.as_ptr()).collect();
                let lengths: Vec<usize> = files.iter().map(|file| file.bytes.len()).collect();
                let mut images: Vec<_> = files.iter().map(|file| file.image(address)).collect();
                let count = files.len() as c_int;
                // SAFETY: the handles are alive, and the state is idle: each is used once (the files are
                // sorted, checked above), and the stream is drained below.
                let status =
                    unsafe { (self.calls.initialize)(self.handle, state, count, 1, RGB_INTERLEAVED) };
                check_status(status, "prepare a batch")?;
                // SAFETY: the `count` files are borrowed until the stream is drained below; each picture lies
                // within `pixels` (checked above), in the size that the library itself parsed (`accept`).
                let status = unsafe {
                    (self.calls.decode)(
                        self.handle,
                        state,
                        addresses.as_ptr(),
                        lengths.as_ptr(),
                        images.as_mut_ptr(),
                        to.stream.0 as Pointer,
                    )
                };
                if status != 0 {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        drop(entry);
        self.times.submit += start.elapsed();
        let start = Instant::now();
        // Until the stream is drained, the device may use the files and the states, even if a call failed.
        stream.synchronize()?;
        self.times.wait += start.elapsed();
        done
    }

    /// The state for files of a sampling.
    fn state(&mut self, sampling: Sampling) -> Result<Pointer> {
        if let Some((_, state)) = self.states.iter().find(|(own, _)| *own == sampling) {
            return Ok(*state);
        }
        let mut state = ptr::null_mut();
        // SAFETY: the handle is alive, and the call writes the state on success.
        check_status(unsafe { (self.calls.state_create)(self.handle, &mut state) }, "create a state")?;
        self.states.push((sampling, state));
        Ok(state)
    }
}

impl Drop for Nvjpeg {
    fn drop(&mut self) {
        if let Err(error) = self.stream.synchronize() {
            // The device may still use the states, so they are leaked.
            return self.stream.device().report(error);
        }
        let Functions { header_destroy, state_destroy, destroy, .. } = &self.calls;
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

fn check_status(status: Status, what: &str) -> Result<()> {
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
    fn chroma_is_interpolated_only_on_request() {
        assert_eq!((flags(Chroma::Interpolated), flags(Chroma::Nearest)), (0b10_0000, 0));
    }

    #[test]
    fn a_device_that_is_not_cuda_is_refused() {
        let stream = feedline_device::Device::new_host().stream().unwrap();
        assert_eq!(
            Nvjpeg::open(&stream, Chroma::Nearest).err().map(|error| error.kind()),
            Some(ErrorKind::Unavailable)
        );
    }
}
