//! The rank of this process and the number of ranks.

use crate::{Error, ErrorKind, Result};

/// The rank of a process, and the number of ranks that share an epoch.
///
/// ```
/// use feedline_core::World;
/// let world = World::new(1, 4)?;
/// assert_eq!((world.rank(), world.size()), (1, 4));
/// assert_eq!(World::single(), World::new(0, 1)?);
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct World {
    rank: u32,
    size: u32,
}

/// The variables that launchers set, as (launcher, rank, size); the first match wins.
///
/// Slurm comes last: its variables are also set when torchrun or mpirun runs inside a Slurm job, and then
/// count other processes.
const SOURCES: [(&str, &str, &str); 3] = [
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS"),
];

impl World {
    /// A single process.
    pub const fn single() -> Self {
        Self { rank: 0, size: 1 }
    }

    /// Rank `rank` of `size`.
    ///
    /// # Errors
    /// `Config` when the size is 0, or the rank is not below the size.
    pub fn new(rank: u32, size: u32) -> Result<Self> {
        if size == 0 {
            return Err(config("the world size is 0: it must be at least 1"));
        }
        if rank >= size {
            return Err(config(format!("rank {rank} in a world of {size}: ranks are 0 to {}", size - 1)));
        }
        Ok(Self { rank, size })
    }

    /// The world that the launcher of this process set; [`single`](Self::single) without a launcher.
    ///
    /// Uses the first launcher that set either of its variables: torchrun (`RANK`, `WORLD_SIZE`), Open MPI
    /// (`OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE`), then Slurm (`SLURM_PROCID`, `SLURM_NTASKS`).
    ///
    /// A Slurm batch script that starts a program without `srun` runs one process with the variables of the
    /// whole job: set `RANK=0 WORLD_SIZE=1` there.
    ///
    /// # Errors
    /// `Config` when only one of the two variables is set or one is not a whole number, and as for
    /// [`new`](Self::new).
    pub fn from_env() -> Result<Self> {
        Self::from_lookup(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// Like [`from_env`](Self::from_env), but reads the variables through `lookup`.
    ///
    /// # Errors
    /// As for [`from_env`](Self::from_env).
    pub(crate) fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        for (launcher, rank, size) in SOURCES {
            let half = |set: &str, unset: &str| {
                Err(config(format!(
                    "{set} is set but {unset} is not: {launcher} sets both, so set both or neither"
                )))
            };
            return match (lookup(rank), lookup(size)) {
                (Some(r), Some(s)) => Self::new(number(rank, &r)?, number(size, &s)?)
                    .map_err(|error| config(format!("{} (from {rank} and {size})", error.message()))),
                (Some(_), None) => half(rank, size),
                (None, Some(_)) => half(size, rank),
                (None, None) => continue,
            };
        }
        Ok(Self::single())
    }

    /// The rank of this process: 0 to `size() - 1`.
    pub const fn rank(self) -> u32 {
        self.rank
    }

    /// The number of ranks.
    pub const fn size(self) -> u32 {
        self.size
    }
}

fn number(name: &str, value: &str) -> Result<u32> {
    value.trim().parse().map_err(|_| config(format!("{name}={value:?} is not a whole number below 2^32")))
}

fn config(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(set: &[(&str, &str)]) -> Result<World> {
        World::from_lookup(|name| set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn every_launcher_is_recognized() {
        for (_, rank, size) in SOURCES {
            assert_eq!(world(&[(rank, "3"), (size, " 8\n")]).unwrap(), World { rank: 3, size: 8 });
        }
        assert_eq!(world(&[]).unwrap(), World::single());
    }

    #[test]
    fn torchrun_takes_precedence_over_open_mpi_and_open_mpi_over_slurm() {
        let slurm = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2")];
        let mpi = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
        let torch = [("RANK", "2"), ("WORLD_SIZE", "8")];
        assert_eq!(world(&[slurm, mpi, torch].concat()).unwrap().size(), 8);
        assert_eq!(world(&[slurm, mpi].concat()).unwrap().size(), 4);
        assert_eq!(world(&slurm).unwrap().size(), 2);
        let half = [("RANK", "2"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2")];
        assert!(world(&half).is_err(), "an incomplete torchrun is an error, not a fallback to Slurm");
    }

    #[test]
    fn invalid_variables_are_named_in_the_error() {
        for (set, message) in [
            (
                vec![("RANK", "1")],
                "RANK is set but WORLD_SIZE is not: torchrun sets both, so set both or neither",
            ),
            (
                vec![("SLURM_NTASKS", "4")],
                "SLURM_NTASKS is set but SLURM_PROCID is not: Slurm sets both, so set both or neither",
            ),
            (vec![("RANK", "-1"), ("WORLD_SIZE", "2")], "RANK=\"-1\" is not a whole number below 2^32"),
            (
                vec![("RANK", "0"), ("WORLD_SIZE", "two")],
                "WORLD_SIZE=\"two\" is not a whole number below 2^32",
            ),
            (
                vec![("RANK", "4"), ("WORLD_SIZE", "4")],
                "rank 4 in a world of 4: ranks are 0 to 3 (from RANK and WORLD_SIZE)",
            ),
            (
                vec![("RANK", "0"), ("WORLD_SIZE", "0")],
                "the world size is 0: it must be at least 1 (from RANK and WORLD_SIZE)",
            ),
        ] {
            let error = world(&set).unwrap_err();
            assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Config, message));
        }
    }
}
