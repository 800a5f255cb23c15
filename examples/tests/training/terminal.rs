//! The output at a terminal: a bar with figures during training, one line after an interrupt, and nothing
//! with `--quiet`.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Output};

use crate::trainer::{command, listing, small_set, text};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

const ARGUMENTS: [&str; 8] = ["--data", ".", "--device", "host", "--batch", "16", "--hidden", "24"];
/// More epochs than a test can finish.
const LONG: [&str; 2] = ["--epochs", "9999"];

/// The user's side of a pseudo-terminal, and everything written to it so far.
struct Terminal {
    user: File,
    written: Vec<u8>,
}

impl Terminal {
    /// Starts the trainer with standard error at a terminal of 80 columns; standard output is a pipe.
    fn start(trainer: Command) -> (Self, Child) {
        Self::start_with(80, trainer)
    }

    fn start_with(columns: u16, mut trainer: Command) -> (Self, Child) {
        let user =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&user).and_then(|()| unlockpt(&user)).expect("its other side");
        let name = ptsname(&user, Vec::new()).expect("its name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let program = rustix::fs::open(name, flags, Mode::empty()).expect("its other side");
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&program, size).expect("its size");
        let child = trainer.env("TERM", "xterm").stderr(program).spawn().expect("the trainer");
        // Dropping `trainer` closes this process's last handle of the program's side; only the child's
        // is left.
        (Self { user: user.into(), written: Vec::new() }, child)
    }

    /// Reads more output; returns false once no process can write any more.
    fn more(&mut self) -> bool {
        let mut bytes = [0; 4096];
        // Reading from a terminal whose other side is closed is an error.
        let read = self.user.read(&mut bytes).unwrap_or(0);
        self.written.extend(&bytes[..read]);
        read > 0
    }

    /// Reads until a line on the screen contains all `parts`, and returns the line.
    fn line_with(&mut self, parts: &[&str]) -> String {
        loop {
            let found =
                screen(&self.written).into_iter().find(|line| parts.iter().all(|part| line.contains(part)));
            if let Some(line) = found {
                return line;
            }
            assert!(self.more(), "no line with {parts:?} in: {:?}", text(&self.written));
        }
    }

    /// The lines on the screen once the trainer has ended, and its output.
    fn end(mut self, child: Child) -> (Vec<String>, Output) {
        while self.more() {}
        (screen(&self.written), child.wait_with_output().expect("its output"))
    }
}

/// The non-empty lines that a terminal shows after receiving `written`.
fn screen(written: &[u8]) -> Vec<String> {
    let text = text(written);
    let (mut lines, mut row, mut column): (Vec<Vec<char>>, usize, usize) = (vec![Vec::new()], 0, 0);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\r' => column = 0,
            '\n' => row += 1,
            '\u{1b}' => {
                // A bracket, a number, and a letter for the command.
                let (mut number, mut what) = (String::new(), rest.nth(1));
                while let Some(c) = what.filter(|c| !c.is_alphabetic()) {
                    number.push(c);
                    what = rest.next();
                }
                let by = number.parse().unwrap_or(1);
                match what {
                    Some('A') => row = row.saturating_sub(by),
                    Some('B') => row += by,
                    Some('K') if number == "2" => lines[row].clear(),
                    Some('K') => lines[row].truncate(column),
                    Some('m' | 'h' | 'l') => {}
                    other => panic!("unexpected terminal command {number:?} {other:?} in: {text:?}"),
                }
            }
            c => {
                let line = &mut lines[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = c;
                column += 1;
            }
        }
        lines.resize(lines.len().max(row + 1), Vec::new());
    }
    let lines = lines.into_iter().map(|line| line.into_iter().collect::<String>());
    lines.filter(|line| !line.trim().is_empty()).collect()
}

fn interrupt(child: &Child) {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
}

/// The bar during training.
const FIGURES: [&str; 5] = [" samples/s", "  loss ", "  waited ", " %  ", " left"];

#[test]
fn the_bar_shows_epoch_rate_loss_share_waited_and_time_left() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let mut trainer = command(set.path());
        trainer.args(ARGUMENTS).args(LONG);
        let (mut terminal, child) = Terminal::start(trainer);
        let mut line = terminal.line_with(&FIGURES);
        // The first line may come before the first batch.
        while line.contains(" 0 samples/s") {
            assert!(terminal.more(), "{line:?} is the last line");
            line = terminal.line_with(&FIGURES);
        }
        assert!(line.starts_with("epoch ") && line.contains("/9999 ") && line.ends_with(" left"), "{line:?}");
        assert!(line.chars().count() <= 80, "{line:?} is wider than the terminal");
        // The figures are numbers.
        let number = |before: &str, after: &str| -> f64 {
            let (head, _) = line.split_once(after).expect(after);
            let word = if before.is_empty() { head.rsplit(' ').next() } else { head.split(before).nth(1) };
            let word = word.unwrap_or("");
            word.trim().parse().unwrap_or_else(|error| panic!("{word:?} before {after:?}: {error}"))
        };
        assert!(number("", " samples/s") > 0.0);
        assert!(number("  loss ", "  waited ") > 0.0);
        assert!((0.0..=100.0).contains(&number("  waited ", " %  ")));
        interrupt(&child);
        terminal.end(child);
    });
}

/// A line that does not fit wraps, and a bar that wraps is drawn anew below itself.
#[test]
fn the_bar_fits_a_terminal_of_60_columns() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let mut trainer = command(set.path());
        trainer.args(ARGUMENTS).args(LONG);
        let (mut terminal, child) = Terminal::start_with(60, trainer);
        for _ in 0..20 {
            let line = terminal.line_with(&["/9999 ", "% ", "/s  loss ", "  waited ", " left"]);
            // The bar before may stand in front of it; one as wide as the terminal has no blank at its end.
            let place = line.rfind("/9999 ").expect("the bar");
            let bar = &line[line[..place].trim_end_matches(|c: char| c.is_ascii_digit()).len()..];
            assert!(bar.trim_end().chars().count() <= 60, "{bar:?} is wider than the terminal");
            assert!(terminal.more(), "{line:?} is the last line");
        }
        interrupt(&child);
        terminal.end(child);
    });
}

#[test]
fn an_interrupt_leaves_one_line_on_the_screen_with_a_checkpoint_and_without() {
    with_watchdog(LIMIT, || {
        for saved in [&["--checkpoint", "saved.ckpt"][..], &[]] {
            let set = small_set();
            let before = listing(set.path());
            let mut trainer = command(set.path());
            trainer.args(ARGUMENTS).args(LONG).args(["--json", "report.json"]).args(saved);
            let (mut terminal, child) = Terminal::start(trainer);
            terminal.line_with(&FIGURES);
            interrupt(&child);
            let (screen, output) = terminal.end(child);
            assert_eq!(
                (output.status.code(), text(&output.stdout)),
                (Some(130), String::new()),
                "{screen:?}"
            );
            let [line] = &screen[..] else { panic!("not one line: {screen:#?}") };
            let what =
                if saved.is_empty() { "; nothing is saved without --checkpoint FILE" } else { "--resume" };
            assert!(line.starts_with("mlp: interrupted after step ") && line.contains(what), "{line:?}");
            // Only the checkpoint is left (resume.rs resumes one): no unfinished file, and no report.
            let left: Vec<_> = listing(set.path()).into_iter().map(|(name, _)| name).collect();
            let there =
                before.into_iter().map(|(name, _)| name).chain(saved.get(1).map(|name| name.to_string()));
            let mut there: Vec<_> = there.collect();
            there.sort();
            assert_eq!(left, there);
        }
    });
}

#[test]
fn a_finished_run_removes_its_bar_and_a_quiet_one_has_none() {
    with_watchdog(LIMIT, || {
        for quiet in [false, true] {
            let set = small_set();
            let mut trainer = command(set.path());
            trainer.args(ARGUMENTS).args(["--epochs", "4"]).args(quiet.then_some("--quiet"));
            let (mut terminal, child) = Terminal::start(trainer);
            while terminal.more() {}
            assert_eq!(terminal.written.is_empty(), quiet, "{:?}", text(&terminal.written));
            let (screen, output) = terminal.end(child);
            assert_eq!(screen, [""; 0], "left on the screen");
            assert!(output.status.success());
            assert_eq!(output.stdout.is_empty(), quiet, "{:?}", text(&output.stdout));
        }
    });
}
