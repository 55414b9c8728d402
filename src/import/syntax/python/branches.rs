//! The branches of an `if`, and which of them run.

/// The branches that a statement lies in, the outermost first.
#[derive(Debug, Default)]
pub(super) struct Branches(Vec<Branch>);

/// One of an `if`, an `elif` or an `else`.
#[derive(Debug)]
struct Branch {
    /// Where its word begins in the line.
    column: usize,
    /// Whether it runs; none where that is not known.
    runs: Option<bool>,
    /// Whether one of the same `if` ran before it.
    ran: Option<bool>,
}

impl Branches {
    /// Leaves the branches that a statement at that column is not in; one that goes on with an `if` leaves the `if` open.
    pub fn leave(&mut self, column: usize, goes_on: bool) {
        let is_left = |branch: &mut Branch| branch.column > column || (branch.column == column && !goes_on);
        while self.0.pop_if(is_left).is_some() {}
    }

    /// Enters an `if`.
    pub fn enter(&mut self, column: usize, holds: Option<bool>) {
        self.0.push(Branch { column, runs: holds, ran: Some(false) });
    }

    /// Goes on with the next branch of the `if` at that column; the `else` of a loop has none.
    pub fn next(&mut self, column: usize, holds: Option<bool>) {
        let Some(branch) = self.0.last_mut().filter(|branch| branch.column == column) else { return };
        branch.ran = match (branch.ran, branch.runs) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            (None, _) | (_, None) => None,
        };
        branch.runs = match (branch.ran, holds) {
            (Some(true), _) | (_, Some(false)) => Some(false),
            (Some(false), holds) => holds,
            (None, _) => None,
        };
    }

    /// Whether one of them does not run.
    pub fn are_passed_over(&self) -> bool {
        self.0.iter().any(|branch| branch.runs == Some(false))
    }

    /// Whether it is not known of one of them whether it runs.
    pub fn are_open(&self) -> bool {
        self.0.iter().any(|branch| branch.runs.is_none())
    }
}
