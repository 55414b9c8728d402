//! What is said where the computer's own memory (RAM) ran out, and not a card's.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::amount::{Amount, amounts};
use crate::units::{BYTES_PER_GB, Bytes};

/// That the computer's memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Host {
    /// An allocation was refused: PyTorch's (`c10/core/impl/alloc_cpu.cpp`), or NumPy's.
    Refused {
        /// What was asked for.
        asked: Amount,
    },
    /// The system says that it killed the process for it.
    Killed {
        /// What the process had of it then, where the system says that.
        had: Option<Amount>,
    },
    /// The process was killed by signal 9, whoever sent it.
    Signal,
}

/// What Linux, a container's runtime and Slurm say where they killed a process for its memory. Linux (`mm/oom_kill.c`): `Out of memory: Killed process
/// 1234 (python) total-vm:…kB, anon-rss:…kB`, of a group `Memory cgroup out of memory: Killed process`.
const KILLED: [&str; 7] = [
    "ut of memory: Killed process",
    "ut of memory: Kill process",
    "oom-kill:",
    "OOMKilled",
    "oom_kill event",
    // of earlier versions of Slurm
    "oom-kill event",
    "OOM Killed",
];

/// What torchrun, accelerate, DeepSpeed, subprocess and shells say of a process that signal 9 ended, all blanks one.
const SIGNAL: [&str; 10] = [
    "Signal 9 (SIGKILL)",
    "exitcode : -9",
    "exitcode: -9",
    "exit code: -9",
    "exits with return code = -9",
    "Signals.SIGKILL",
    "exit code 137",
    "exit code: 137",
    "exited with code 137",
    "exit status 137",
];

impl Host {
    /// What a text says of it; nothing where it says none. `words` is the text with every blank one.
    pub(super) fn read(text: &str, words: &str) -> Option<Host> {
        let is_of_pytorch = words.contains("DefaultCPUAllocator");
        let refused = amounts(words, BYTES_PER_GB).into_iter().find(|found| {
            let of_pytorch = is_of_pytorch && found.before.ends_with("you tried to allocate");
            // numpy/core/_exceptions.py
            of_pytorch
                || found.before.ends_with("Unable to allocate") && found.after.starts_with("for an array")
        });
        if let Some(found) = refused {
            return Some(Host::Refused { asked: found.amount });
        }
        if KILLED.iter().any(|said| words.contains(said)) {
            let had = words.split("anon-rss:").nth(1).and_then(|rest| {
                let end = rest.find("kB")? + "kB".len();
                amounts(&rest[..end], BYTES_PER_GB).first().map(|found| found.amount)
            });
            return Some(Host::Killed { had });
        }
        let is_shells = |line: &str| {
            let line = line.trim();
            // bash: "train.sh: line 3: 12345 Killed python train.py"
            let of_script = line.split_once(" Killed ").is_some_and(|(before, _)| {
                before.contains("line ") && before.trim_end().ends_with(|last: char| last.is_ascii_digit())
            });
            // zsh: "zsh: killed     python train.py"
            line == "Killed" || of_script || line.starts_with("zsh: killed")
        };
        (SIGNAL.iter().any(|said| words.contains(said)) || text.lines().any(is_shells))
            .then_some(Host::Signal)
    }

    /// What was asked for.
    pub(super) fn asked(self) -> Option<Bytes> {
        match self {
            Host::Refused { asked } => Some(asked.bytes),
            Host::Killed { .. } | Host::Signal => None,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Refused { .. } => f.write_str(
                "This is the computer's own memory (RAM), not the GPU's: what makes the run smaller on the card does not help.",
            ),
            Host::Killed { had } => {
                let had = had.map_or_else(String::new, |had| format!(", of which it had {}", had.bytes));
                write!(
                    f,
                    "The system killed the process, as the computer's own memory (RAM){had}, or what a container or a batch system leaves it of that, was \
                     full. The GPU's has no part in it."
                )
            }
            Host::Signal => f.write_str(
                "Signal 9 ended the process (exit code -9 or 137), which PyTorch never does for a GPU's memory: most often it is the system, as the \
                 computer's own memory (RAM) is full, or what a container or a batch system leaves of it. Then dmesg says \"Out of memory: Killed process\".",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Host> {
        Host::read(text, &text.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn refusals_are_read() {
        for text in [
            "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: not enough memory: you tried to allocate 68719476736 bytes. \
             Error code 12 (Cannot allocate memory)",
            "[enforce fail at CPUAllocator.cpp:68] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 68719476736 bytes.",
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 64.0 GiB for an array with shape (8, 2048, 1048576) and data type float32",
        ] {
            assert_eq!(read(text).and_then(Host::asked), Some(Bytes::gib(64.0)), "{text}");
        }
    }

    #[test]
    fn what_the_system_killed_is_told_from_what_signal_9_did() {
        let kernel = "[ 1234.5] Out of memory: Killed process 4242 (python) total-vm:91234560kB, anon-rss:67108864kB, file-rss:1024kB, shmem-rss:0kB";
        let Some(Host::Killed { had: Some(had) }) = read(kernel) else { panic!("{:?}", read(kernel)) };
        assert_eq!(had.bytes, Bytes::gib(64.0));
        for text in [
            "slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch",
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1234.0. Some of your processes may have been killed by the cgroup out-of-memory handler.",
            "Memory cgroup out of memory: Killed process 7",
        ] {
            assert_eq!(read(text), Some(Host::Killed { had: None }), "{text}");
        }
        for text in [
            "  exitcode  : -9 (pid: 4242)\n  traceback : Signal 9 (SIGKILL) received by PID 4242",
            "loading …\nKilled\n",
            "zsh: killed     python train.py",
            "run.sh: line 3: 4242 Killed                  python train.py",
            "subprocess.CalledProcessError: Command died with <Signals.SIGKILL: 9>.",
        ] {
            assert_eq!(read(text), Some(Host::Signal), "{text}");
        }
        for text in
            ["", "Killed by the user", "exitcode : -15", "exit code 1", "you tried to allocate 7 bytes"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
