//! The plan of a product: cuBLASLt's descriptors and algorithms.

use cudarc::cublaslt::{result, sys};
use feedline_core::Result;

use super::{Handle, Linear, Product, WORKSPACE, failed};

/// The maximum number of algorithms to ask for.
const CANDIDATES: usize = 40;

pub(super) type Algo = sys::cublasLtMatmulAlgo_t;

/// Descriptors and algorithms of one product and shape.
pub(super) struct Plan {
    pub(super) desc: Desc,
    pub(super) a: Matrix,
    pub(super) b: Matrix,
    pub(super) d: Matrix,
    /// Best algorithm first; the rest is dropped after timing.
    pub(super) algos: Vec<Algo>,
    has_bias: bool,
}

// SAFETY: the handles are host objects of cuBLASLt, used only under the lock of `CublasLt::plans`.
unsafe impl Send for Plan {}

impl Plan {
    /// Returns `None` if cuBLASLt has no algorithm for the product with its epilogue.
    pub(super) fn new(
        handle: &Handle,
        product: Product,
        shape: Linear,
        tf32: bool,
        vector: u64,
    ) -> Result<Option<Self>> {
        use sys::cublasLtEpilogue_t as Epilogue;
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        let Linear { rows, inputs, outputs } = shape;
        // (transpose a, transpose b), then the (rows, columns) of each operand in column-major order.
        let (transposed, a, b, d) = match product {
            Product::Forward { .. } => ((true, false), (inputs, outputs), (inputs, rows), (outputs, rows)),
            Product::WeightGradient => ((false, true), (inputs, rows), (outputs, rows), (inputs, outputs)),
            Product::WeightGradientTransposed => {
                ((true, false), (rows, inputs), (rows, outputs), (inputs, outputs))
            }
            Product::InputGradient => ((false, false), (inputs, outputs), (outputs, rows), (inputs, rows)),
        };
        let epilogue = match product {
            Product::Forward { relu: false } => Epilogue::CUBLASLT_EPILOGUE_BIAS,
            Product::Forward { relu: true } => Epilogue::CUBLASLT_EPILOGUE_RELU_BIAS,
            Product::WeightGradient | Product::WeightGradientTransposed | Product::InputGradient => {
                Epilogue::CUBLASLT_EPILOGUE_DEFAULT
            }
        };
        let compute = if tf32 {
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32
        } else {
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F
        };
        let desc = result::create_matmul_desc(compute, sys::cudaDataType::CUDA_R_32F);
        let desc = Desc(desc.map_err(|error| failed("describe a product", &error))?);
        desc.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &i32::from(transposed.0))?;
        desc.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &i32::from(transposed.1))?;
        desc.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &(epilogue as u32))?;
        let (a, b, d) = (Matrix::new(a)?, Matrix::new(b)?, Matrix::new(d)?);
        let has_bias = matches!(product, Product::Forward { .. });
        let mut plan = Self { desc, a, b, d, algos: Vec::new(), has_bias };
        // The choice of the algorithm depends on the alignment of the bias.
        plan.set_bias(vector)?;
        plan.algos = plan.candidates(handle)?;
        Ok((!plan.algos.is_empty()).then_some(plan))
    }

    /// The library's algorithms for this product, ordered by its heuristic; may be empty.
    fn candidates(&self, handle: &Handle) -> Result<Vec<Algo>> {
        let preference = Preference::new()?;
        // SAFETY: a plain C structure for which all zeros is a valid value; the library fills it in.
        let mut found: [sys::cublasLtMatmulHeuristicResult_t; CANDIDATES] = unsafe { std::mem::zeroed() };
        let mut count = 0;
        // SAFETY: all descriptors are alive, and `found` has room for the requested number of results.
        let status = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle.raw,
                self.desc.0,
                self.a.0,
                self.b.0,
                self.d.0,
                self.d.0,
                preference.0,
                CANDIDATES as i32,
                found.as_mut_ptr(),
                &mut count,
            )
        };
        if status != sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS {
            return Ok(Vec::new());
        }
        let usable = |result: &&sys::cublasLtMatmulHeuristicResult_t| {
            result.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS
        };
        let found = &found[..usize::try_from(count).unwrap_or(0).min(CANDIDATES)];
        Ok(found.iter().filter(usable).map(|result| result.algo).collect())
    }

    pub(super) fn set_bias(&self, vector: u64) -> Result<()> {
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        if self.has_bias {
            self.desc.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector)?;
        }
        Ok(())
    }
}

pub(super) struct Desc(pub(super) sys::cublasLtMatmulDesc_t);

impl Desc {
    fn set<T>(&self, attribute: sys::cublasLtMatmulDescAttributes_t, value: &T) -> Result<()> {
        // SAFETY: the descriptor is alive, and cuBLASLt copies `size_of::<T>()` bytes from the value.
        unsafe {
            result::set_matmul_desc_attribute(
                self.0,
                attribute,
                std::ptr::from_ref(value).cast(),
                size_of::<T>(),
            )
        }
        .map_err(|error| failed("describe a product", &error))
    }
}

impl Drop for Desc {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        let _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

pub(super) struct Matrix(pub(super) sys::cublasLtMatrixLayout_t);

impl Matrix {
    /// A dense column-major matrix of (rows, columns).
    fn new((rows, columns): (usize, usize)) -> Result<Self> {
        result::create_matrix_layout(sys::cudaDataType::CUDA_R_32F, rows as u64, columns as u64, rows as i64)
            .map(Self)
            .map_err(|error| failed("describe a matrix", &error))
    }
}

impl Drop for Matrix {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        let _ = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    fn new() -> Result<Self> {
        let preference = result::create_matmul_pref().map(Self);
        let preference = preference.map_err(|error| failed("describe a preference", &error))?;
        let attribute = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        // SAFETY: the preference is alive, and cuBLASLt copies the number.
        unsafe {
            result::set_matmul_pref_attribute(
                preference.0,
                attribute,
                std::ptr::from_ref(&WORKSPACE).cast(),
                size_of::<usize>(),
            )
        }
        .map_err(|error| failed("describe a preference", &error))?;
        Ok(preference)
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}
