//! Ops scheduled by their dependencies on several streams, the way frameworks do it.
//!
//! An op runs after one of its parents, on the same stream and without an event, if no other op was queued
//! there since. Otherwise it runs on the stream whose last op was queued longest ago. Every other edge of the
//! graph is an event: the output of an op is a shared buffer, and the stream that reads it waits for it.
//!
//! `cargo run --release --example schedule`
#![forbid(unsafe_code)]

use std::time::Instant;

use feedline::device::BackendKind;
use feedline::{Device, Error, ErrorKind, Event, Result, Stream};
use feedline_device::{Buffer, SharedBuffer};
use feedline_examples::branches::{add, random};
use feedline_kernels::ops::{Kernels, Linear};

/// The parents of each op, which come before it.
const GRAPH: [&[usize]; 11] =
    [&[], &[0], &[0], &[0], &[1], &[1, 2], &[3], &[2, 3], &[4, 5], &[6, 7], &[8, 9]];

/// The stream for each op.
fn place(graph: &[&[usize]], streams: usize) -> Vec<usize> {
    let mut last = vec![None; streams];
    let stream = |(op, parents): (usize, &&[usize])| {
        let behind = last.iter().position(|last| last.is_some_and(|last| parents.contains(&last)));
        // `None`, a stream without an op, comes first in this order.
        let stream = behind.or_else(|| (0..streams).min_by_key(|&stream| last[stream])).unwrap_or(0);
        last[stream] = Some(op);
        stream
    };
    graph.iter().enumerate().map(stream).collect()
}

/// One op: `relu(W (x + y + ...))` of its parents' outputs, or of the input.
struct Op {
    /// The index of the op's stream.
    stream: usize,
    parents: &'static [usize],
    weights: Buffer<f32>,
    bias: Buffer<f32>,
    sum: Buffer<f32>,
    scratch: Buffer<f32>,
    output: SharedBuffer<f32>,
    times: [Event; 2],
}

/// The ops of the graph on their streams.
struct Plan {
    streams: Vec<(Stream, Kernels)>,
    start: Event,
    input: SharedBuffer<f32>,
    ops: Vec<Op>,
    shape: Linear,
}

impl Plan {
    fn new(device: &Device, streams: usize, (rows, width): (usize, usize)) -> Result<Self> {
        let new = |_| device.stream().and_then(|stream| Ok((stream.clone(), Kernels::new(&stream)?)));
        let streams = (0..streams).map(new).collect::<Result<Vec<_>>>()?;
        let bound = 2.0 / (width as f32).sqrt();
        let op = |(op, stream): (usize, usize)| {
            let on = &streams[stream].0;
            let mut weights = Buffer::new(on, width * width)?;
            let numbers = random(width * width, 1 + op as u64).into_iter();
            weights.write(&numbers.map(|u| (2.0 * u - 1.0) * bound).collect::<Vec<_>>())?;
            Ok(Op {
                stream,
                parents: GRAPH[op],
                weights,
                bias: Buffer::new(on, width)?,
                sum: Buffer::new(on, rows * width)?,
                scratch: Buffer::new(on, rows * width)?,
                output: SharedBuffer::new(on, rows * width)?,
                times: [on.device().timing_event()?, on.device().timing_event()?],
            })
        };
        let ops = place(&GRAPH, streams.len()).into_iter().enumerate().map(op).collect::<Result<_>>()?;
        let mut input = SharedBuffer::new(&streams[0].0, rows * width)?;
        input.write(&random(rows * width, 0))?;
        let shape = Linear { rows, inputs: width, outputs: width };
        Ok(Self { start: device.timing_event()?, input, ops, shape, streams })
    }

    /// Queues all ops, in the order of the graph; the host does not block.
    fn run(&mut self) -> Result<()> {
        self.streams[0].0.record(&self.start)?;
        for at in 0..self.ops.len() {
            let (before, rest) = self.ops.split_at_mut(at);
            let op = &mut rest[0];
            let (stream, kernels) = &self.streams[op.stream];
            kernels.fill(op.sum.view_mut(), 0.0)?;
            if op.parents.is_empty() {
                add(kernels, op.sum.view_mut(), self.input.on(stream)?, &mut op.scratch)?;
            }
            for &parent in op.parents {
                // The edge: an event if the parent is on another stream.
                add(kernels, op.sum.view_mut(), before[parent].output.on(stream)?, &mut op.scratch)?;
            }
            stream.record(&op.times[0])?;
            let (x, weights, bias) = (op.sum.view(), op.weights.view(), op.bias.view());
            kernels.linear(x, weights, bias, true, op.output.view_mut()?, self.shape)?;
            stream.record(&op.times[1])?;
        }
        Ok(())
    }

    /// The output of the last op; blocks.
    fn output(&self) -> Result<Vec<f32>> {
        self.streams.iter().try_for_each(|(stream, _)| stream.synchronize())?;
        self.ops.last().map_or(Ok(Vec::new()), |op| op.output.read())
    }

    /// Microseconds per run, the best of several turns.
    fn time(&mut self) -> Result<f64> {
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let start = Instant::now();
            (0..50).try_for_each(|_| self.run())?;
            self.output()?;
            best = best.min(start.elapsed().as_secs_f64() * 1e6 / 50.0);
        }
        Ok(best)
    }
}

fn main() -> Result<()> {
    let device = Device::best()?;
    let sizes = if device.kind() == BackendKind::Cuda { (512, 1024) } else { (192, 128) };
    let (mut one, mut three) = (Plan::new(&device, 1, sizes)?, Plan::new(&device, 3, sizes)?);
    let times = [one.time()?, three.time()?];
    for (at, op) in three.ops.iter().enumerate() {
        let [from, to] =
            [op.times[0].elapsed_ms_since(&three.start)?, op.times[1].elapsed_ms_since(&three.start)?];
        let crosses = |&&parent: &&usize| three.ops[parent].stream != op.stream;
        let events = op.parents.iter().filter(crosses).count();
        println!("op {at:>2} on stream {}, {events} events, {from:.3} to {to:.3} ms", op.stream);
    }
    println!("one stream {:.1} us, three streams {:.1} us per run", times[0], times[1]);
    let wanted = one.output()?;
    let same = three.output()? == wanted;
    println!("the same output: {same}");
    for seed in 0..10 {
        let (device, sim) = feedline_sim::device(seed)?;
        let mut plan = Plan::new(&device, 3, (4, 8))?;
        (0..3).try_for_each(|_| plan.run())?;
        plan.output()?;
        drop((plan, device));
        sim.finish()?;
    }
    println!("no race in 10 schedules of the simulator");
    if same { Ok(()) } else { Err(Error::new(ErrorKind::Device, "three streams have another output")) }
}
