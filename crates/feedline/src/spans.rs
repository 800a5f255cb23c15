//! Spans for subscribers of `tracing`, and ranges for Nsight Systems: each under the feature of its name.

/// A span of the calling thread's work, until this is dropped. Without the features it does nothing.
pub(crate) struct Entered {
    #[cfg(feature = "tracing")]
    pub(crate) _span: tracing::span::EnteredSpan,
    #[cfg(feature = "nvtx")]
    pub(crate) _range: Range,
}

/// Enters the span called `$name`, for the batch of `$info`.
macro_rules! enter {
    ($name:literal) => {
        $crate::spans::Entered {
            #[cfg(feature = "tracing")]
            _span: tracing::debug_span!(target: "feedline", $name).entered(),
            #[cfg(feature = "nvtx")]
            _range: $crate::spans::range($name),
        }
    };
    ($name:literal, $info:expr) => {{
        let info: &feedline_core::BatchInfo = $info;
        let _ = info;
        $crate::spans::Entered {
            #[cfg(feature = "tracing")]
            _span: tracing::debug_span!(target: "feedline", $name, epoch = info.epoch, step = info.step)
                .entered(),
            #[cfg(feature = "nvtx")]
            _range: $crate::spans::range($name),
        }
    }};
}

pub(crate) use enter;

/// A range in Nsight Systems, until it is dropped.
#[cfg(feature = "nvtx")]
pub(crate) type Range = nvtx::Range;

/// Begins a range called `name`.
#[cfg(feature = "nvtx")]
pub(crate) fn range(name: &str) -> Range {
    Range::new(nvtx::Str::from_str_lossy(name))
}
