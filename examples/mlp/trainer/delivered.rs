//! The samples that the ranks of a run have delivered, per rank and together.

use feedline::sampler::Proof;
use feedline::{BadSampleReport, Cursor};
use feedline_core::random::key;
use serde::{Deserialize, Serialize};

/// The samples that one rank has delivered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Delivered {
    pub cursor: Cursor,
    pub bad_sample_report: BadSampleReport,
}

/// The proof over the samples of all ranks.
pub fn whole_proof(all: &[Delivered]) -> Proof {
    let mut proof = Proof::default();
    all.iter().for_each(|one| proof.merge(one.cursor.proof()));
    proof
}

/// The bad samples of all ranks.
pub fn whole_report(all: &[Delivered]) -> BadSampleReport {
    let mut report = BadSampleReport::default();
    all.iter().for_each(|one| report.merge(&one.bad_sample_report));
    report
}

/// The hash of the delivered sample ids, in order; with several ranks, over the hashes of all.
pub fn whole_order_hash(all: &[Delivered]) -> u64 {
    match all {
        [one] => one.cursor.order_hash(),
        all => key(&all.iter().map(|one| one.cursor.order_hash()).collect::<Vec<_>>()),
    }
}
