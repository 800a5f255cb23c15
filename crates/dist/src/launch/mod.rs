//! The launcher's variables: rank, world, local rank, and where the ranks meet.

mod hostlist;

use feedline_core::random::splitmix64;
use feedline_core::{Result, World};

use crate::config;
use hostlist::first_host;

/// The default port of the rendezvous, as in PyTorch.
const DEFAULT_PORT: u16 = 29500;

/// Derived ports lie below the range that Linux uses for outgoing connections.
const DERIVED_PORTS: std::ops::Range<u16> = 20_000..30_000;

/// One process of a run, as its launcher describes it.
///
/// ```
/// use feedline_dist::Launch;
/// let launch = Launch::from_lookup(|name| match name {
///     "RANK" => Some("3".into()),
///     "LOCAL_RANK" => Some("1".into()),
///     "WORLD_SIZE" => Some("4".into()),
///     "MASTER_ADDR" => Some("gpu01".into()),
///     "MASTER_PORT" => Some("29400".into()),
///     _ => None,
/// })?;
/// assert_eq!((launch.world().rank(), launch.world().size(), launch.local_rank()), (3, 4, 1));
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    world: World,
    local_rank: u32,
    launcher: &'static str,
    rendezvous: Option<Rendezvous>,
}

/// Where the ranks meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    /// The host of rank 0.
    pub host: String,
    /// The port of the store.
    pub port: u16,
    /// Whether the launcher serves the store. Otherwise rank 0 does.
    pub served_by_launcher: bool,
    /// Distinguishes this run, and this attempt at it, from others that use the same store.
    pub run_id: String,
}

/// The names of one launcher's variables.
struct VariableNames {
    launcher: &'static str,
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
}

const PLAIN: VariableNames =
    VariableNames { launcher: "the environment", rank: "RANK", size: "WORLD_SIZE", local_rank: "LOCAL_RANK" };
const OPEN_MPI: VariableNames = VariableNames {
    launcher: "Open MPI",
    rank: "OMPI_COMM_WORLD_RANK",
    size: "OMPI_COMM_WORLD_SIZE",
    local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
};
const SLURM: VariableNames = VariableNames {
    launcher: "Slurm",
    rank: "SLURM_PROCID",
    size: "SLURM_NTASKS",
    local_rank: "SLURM_LOCALID",
};

/// The variables of one launcher.
struct LauncherEnv {
    names: &'static VariableNames,
    world: World,
    local_rank: Option<u32>,
}

impl Launch {
    /// A process in a world of one.
    pub fn single() -> Self {
        Self { world: World::single(), local_rank: 0, launcher: "no launcher", rendezvous: None }
    }

    /// Rank `world.rank()` of a run that meets at `rendezvous`, for programs that start their own processes.
    pub fn new(world: World, local_rank: u32, rendezvous: Rendezvous) -> Self {
        Self { world, local_rank, launcher: "the program", rendezvous: Some(rendezvous) }
    }

    /// The process that the launcher's variables describe; [`single`](Self::single) without a launcher.
    ///
    /// | launcher | variables |
    /// | --- | --- |
    /// | torchrun, Kubernetes, by hand | `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR`, `MASTER_PORT` |
    /// | Open MPI | `OMPI_COMM_WORLD_RANK`, `_SIZE`, `_LOCAL_RANK` |
    /// | Slurm | `SLURM_PROCID`, `SLURM_NTASKS`, `SLURM_LOCALID` |
    ///
    /// The innermost launcher counts: torchrun inside a job of Slurm or mpirun, mpirun inside a job of Slurm.
    /// `RANK` and `WORLD_SIZE` that are set by hand must agree with the launcher that started the process.
    ///
    /// Without `MASTER_ADDR`, the host of rank 0 is this one if the run has one host, and the first of
    /// Slurm's list of nodes otherwise.
    ///
    /// # Errors
    /// `Config` naming the variables and their values: for one that is missing or is not a number, for ranks
    /// that contradict each other, and if the host of rank 0 is unknown.
    pub fn from_env() -> Result<Self> {
        Self::from_lookup(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// Like [`from_env`](Self::from_env), but reads the variables through `lookup`.
    ///
    /// # Errors
    /// As for [`from_env`](Self::from_env).
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let variables = Lookup(&|name| lookup(name).map(|value| value.trim().to_owned()));
        let torchrun = variables.has("TORCHELASTIC_RUN_ID");
        let plain = variables.launcher(&PLAIN)?;
        let open_mpi = variables.launcher(&OPEN_MPI)?;
        // Without SLURM_PROCID, srun did not start this process: it runs in the shell of an allocation.
        let slurm = if variables.has(SLURM.rank) { variables.launcher(&SLURM)? } else { None };
        // A batch script itself runs once, with the variables of the whole job. So it may set a world of one
        // for a program that it starts without srun.
        let alone_in_batch = plain.as_ref().is_some_and(|plain| plain.world == World::single())
            && open_mpi.is_none()
            && !variables.has("SLURM_STEP_ID");
        let started_by = open_mpi.or(slurm);
        let Some(env) = (match (plain, started_by) {
            (Some(plain), Some(other)) if !torchrun && !alone_in_batch => {
                Some(variables.agreed(plain, &other)?)
            }
            (plain, other) => plain.or(other),
        }) else {
            return Ok(Self::single());
        };
        let rendezvous =
            if env.world.size() > 1 { Some(variables.rendezvous(&env, torchrun)?) } else { None };
        Ok(Self {
            world: env.world,
            local_rank: env.local_rank.unwrap_or(0),
            launcher: if torchrun { "torchrun" } else { env.names.launcher },
            rendezvous,
        })
    }

    /// Rank and number of ranks.
    pub fn world(&self) -> World {
        self.world
    }

    /// The rank among the processes of this host: the number of the GPU to use. 0 if the launcher does not
    /// set it.
    pub fn local_rank(&self) -> usize {
        self.local_rank as usize
    }

    /// The launcher's name.
    pub fn launcher(&self) -> &'static str {
        self.launcher
    }

    /// Where the ranks meet; `None` in a world of one.
    pub fn rendezvous(&self) -> Option<&Rendezvous> {
        self.rendezvous.as_ref()
    }
}

/// Reads variables.
struct Lookup<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Lookup<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn number<T: std::str::FromStr>(&self, name: &str, wanted: &str) -> Result<Option<T>> {
        self.get(name)
            .map(|value| value.parse().map_err(|_| config(format!("{name}={value:?} is not {wanted}"))))
            .transpose()
    }

    fn rank(&self, name: &str) -> Result<Option<u32>> {
        self.number(name, "a whole number below 2^32")
    }

    /// The variables of one launcher; `None` if it did not start this process.
    fn launcher(&self, names: &'static VariableNames) -> Result<Option<LauncherEnv>> {
        let half = |set, unset| {
            let launcher = names.launcher;
            Err(config(format!(
                "{set} is set but {unset} is not: {launcher} needs both, so set both or neither"
            )))
        };
        let (rank, size) = match (self.rank(names.rank)?, self.rank(names.size)?) {
            (Some(rank), Some(size)) => (rank, size),
            (Some(_), None) => return half(names.rank, names.size),
            (None, Some(_)) => return half(names.size, names.rank),
            (None, None) => return Ok(None),
        };
        let world = World::new(rank, size).map_err(|error| {
            config(format!("{} (from {} and {})", error.message(), names.rank, names.size))
        })?;
        Ok(Some(LauncherEnv { names, world, local_rank: self.rank(names.local_rank)? }))
    }

    /// The plain variables, which must agree with those of the launcher `other`.
    fn agreed(&self, plain: LauncherEnv, other: &LauncherEnv) -> Result<LauncherEnv> {
        let pairs = [
            (plain.names.size, other.names.size, plain.world.size() == other.world.size()),
            (plain.names.rank, other.names.rank, plain.world.rank() == other.world.rank()),
            (
                plain.names.local_rank,
                other.names.local_rank,
                plain.local_rank.zip(other.local_rank).is_none_or(|(one, two)| one == two),
            ),
        ];
        for (name, other_name, same) in pairs {
            if !same {
                let (value, other_value) = (self.get(name), self.get(other_name));
                return Err(config(format!(
                    "{name}={} contradicts {other_name}={} of {}: unset {name}, or start it without {}",
                    value.unwrap_or_default(),
                    other_value.unwrap_or_default(),
                    other.names.launcher,
                    other.names.launcher
                )));
            }
        }
        Ok(LauncherEnv { local_rank: plain.local_rank.or(other.local_rank), names: other.names, ..plain })
    }

    /// Where the ranks meet.
    fn rendezvous(&self, env: &LauncherEnv, torchrun: bool) -> Result<Rendezvous> {
        let run_id = self.run_id();
        let served_by_launcher = torchrun
            && self
                .get("TORCHELASTIC_USE_AGENT_STORE")
                .is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let port = self.number::<u16>("MASTER_PORT", "a port, 1 to 65535")?;
        if port == Some(0) {
            return Err(config("MASTER_PORT=0: give the port on which rank 0 listens, 1 to 65535"));
        }
        let given = self.get("MASTER_ADDR");
        let port = port.unwrap_or_else(|| if given.is_some() { DEFAULT_PORT } else { derived_port(&run_id) });
        let host = match given {
            Some(host) => host,
            None => self.derived_host(env)?,
        };
        Ok(Rendezvous { host, port, served_by_launcher, run_id })
    }

    /// The host of rank 0 by the launcher's variables.
    fn derived_host(&self, env: &LauncherEnv) -> Result<String> {
        let here = || Ok("127.0.0.1".to_owned());
        match env.names.launcher {
            "Open MPI" if self.get("OMPI_COMM_WORLD_LOCAL_SIZE") == self.get("OMPI_COMM_WORLD_SIZE") => {
                here()
            }
            "Open MPI" => Err(config(
                "mpirun started this program on several hosts, and MASTER_ADDR is not set: pass the host of \
                 rank 0 to all, as in mpirun -x MASTER_ADDR=$(hostname) -x MASTER_PORT=29500",
            )),
            "Slurm" => {
                let nodes = self.get("SLURM_STEP_NUM_NODES").or_else(|| self.get("SLURM_NNODES"));
                if nodes.as_deref() == Some("1") {
                    return here();
                }
                let list = self.get("SLURM_STEP_NODELIST").or_else(|| self.get("SLURM_JOB_NODELIST"));
                list.as_deref().and_then(first_host).ok_or_else(|| {
                    config(
                        "SLURM_STEP_NODELIST does not name the node of rank 0: export \
                         MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)",
                    )
                })
            }
            _ => Err(config(
                "RANK and WORLD_SIZE are set but MASTER_ADDR is not: export MASTER_ADDR, the host of rank 0, \
                 and MASTER_PORT, a free port on it",
            )),
        }
    }

    /// Distinguishes this run, and this attempt at it, from others.
    fn run_id(&self) -> String {
        let names = [
            "TORCHELASTIC_RUN_ID",
            "TORCHELASTIC_RESTART_COUNT",
            "SLURM_JOB_ID",
            "SLURM_STEP_ID",
            "PMIX_NAMESPACE",
            "OMPI_MCA_ess_base_jobid",
        ];
        let parts: Vec<_> = names.into_iter().filter_map(|name| self.get(name)).collect();
        parts.join(".")
    }
}

/// A port that is the same for all ranks of a run, and most likely differs between runs.
fn derived_port(run_id: &str) -> u16 {
    let mixed = run_id.bytes().fold(0, |state, byte| splitmix64(state ^ u64::from(byte)));
    DERIVED_PORTS.start + (mixed % u64::from(DERIVED_PORTS.end - DERIVED_PORTS.start)) as u16
}

#[cfg(test)]
mod tests;
