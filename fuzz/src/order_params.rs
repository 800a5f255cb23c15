//! Any order over any set, in any world, is either refused when the plan is made, or gives ids of the set only: the
//! same when asked again, every one of a shuffle exactly once.

use arbitrary::{Result, Unstructured};
use feedline_core::{ErrorKind, Order, Plan, PlanOptions, Tail, World};

/// What is read of a plan at most: a batch of 2^60 is a legal option, but no machine holds it.
const ROWS: usize = 4096;

/// Makes an order and a plan of `data`, and asks for batches.
pub fn check(data: &[u8]) {
    // Bytes that run out are no finding.
    let _ = build(&mut Unstructured::new(data));
}

fn build(data: &mut Unstructured<'_>) -> Result<()> {
    let len = number(data)?;
    let Some(order) = order(data, 2)? else { return Ok(()) };
    let size = data.int_in_range(0..=9)?;
    let Ok(world) = World::new(data.int_in_range(0..=9)?, size) else { return Ok(()) };
    let tail = *data.choose(&[Tail::Keep, Tail::Drop, Tail::Pad])?;
    let batch = number(data)? as usize;
    let options = PlanOptions { len, order, seed: data.arbitrary()?, batch, tail, world };
    let mut plan = match Plan::new(options) {
        Ok(plan) => plan,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            return Ok(());
        }
    };
    let epoch = number(data)?;
    for _ in 0..data.int_in_range(0..=3)? {
        let (first, end) = (number(data)?, number(data)?);
        let _ = if data.arbitrary()? {
            plan.skip(epoch, first..end)
        } else {
            plan.skip_positions(epoch, first..end)
        };
    }
    batches(&plan, epoch, number(data)?, number(data)?);
    whole(&plan, epoch);
    Ok(())
}

/// Small numbers, large ones, and those at the edges.
fn number(data: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match data.int_in_range(0..=3)? {
        0 => data.int_in_range(0..=100)?,
        1 => (1u64 << data.int_in_range(0..=63)?) - u64::from(data.arbitrary::<bool>()?),
        2 => u64::MAX - data.int_in_range(0..=100)?,
        _ => data.arbitrary()?,
    })
}

fn order(data: &mut Unstructured<'_>, depth: usize) -> Result<Option<Order>> {
    let order = match data.int_in_range(0..=if depth > 0 { 6 } else { 5 })? {
        0 => Ok(Order::Sequential),
        1 => Ok(Order::Shuffle),
        2 => Order::block(number(data)?, number(data)?),
        3 => Order::weighted(&data.arbitrary::<Vec<f64>>()?),
        4 => Order::distinct(&data.arbitrary::<Vec<f64>>()?),
        5 => Order::balanced(&labels(data)?, data.int_in_range(0..=9)?),
        _ => {
            let ids = data.arbitrary::<Vec<u64>>()?;
            let Some(inner) = order(data, depth - 1)? else { return Ok(None) };
            Order::subset(ids, inner)
        }
    };
    let order = match order {
        Ok(order) if data.arbitrary()? => order.draws(number(data)?),
        other => other,
    };
    Ok(order.inspect_err(|error| assert_eq!(error.kind(), ErrorKind::Config, "{error}")).ok())
}

fn labels(data: &mut Unstructured<'_>) -> Result<Vec<u32>> {
    let count = data.int_in_range(0..=64)?;
    (0..count).map(|_| data.int_in_range(0..=9)).collect()
}

fn batches(plan: &Plan, epoch: u64, start: u64, step: u64) {
    let options = plan.options();
    if !readable(plan) {
        return;
    }
    let (mut ids, mut again) = (Vec::new(), Vec::new());
    for step in [0, step] {
        let due = plan.batch(epoch, start, step, &mut ids);
        assert_eq!(plan.batch(epoch, start, step, &mut again), due);
        assert_eq!(ids, again, "the same when asked again");
        assert!(due <= ids.len() && ids.len() <= options.batch, "{due} of {} rows", ids.len());
        assert!(step < plan.steps(epoch, start) || ids.is_empty());
        for (row, &id) in ids.iter().enumerate() {
            assert!(id < options.len, "id {id} of {}", options.len);
            let position = plan.position(epoch, start, step, row);
            assert_eq!(position.and_then(|at| plan.id(epoch, at)), Some(id), "row {row} at {position:?}");
        }
        assert!(plan.position_after(epoch, start, step) <= plan.positions().max(start));
    }
}

/// Whether a batch fits in memory, and its first call draws no epoch of billions.
fn readable(plan: &Plan) -> bool {
    let draws_an_epoch = format!("{:?}", plan.options().order).contains("Distinct");
    plan.options().batch <= ROWS && !(draws_an_epoch && plan.positions() > ROWS as u64)
}

/// One rank alone that keeps its tail delivers each position once: of a permutation, every sample once.
fn whole(plan: &Plan, epoch: u64) {
    let options = plan.options();
    let alone = options.world == World::single() && options.tail == Tail::Keep;
    if !alone || plan.positions() > ROWS as u64 || !readable(plan) {
        return;
    }
    let (mut all, mut ids) = (Vec::new(), Vec::new());
    for step in 0..plan.steps(epoch, 0) {
        plan.batch(epoch, 0, step, &mut ids);
        assert!(!ids.is_empty(), "an empty step");
        all.extend_from_slice(&ids);
    }
    let live = plan.positions() - plan.skipped(epoch, 0..plan.positions());
    assert_eq!(all.len() as u64, live);
    if options.order.is_permutation() {
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "a sample came twice");
    }
}
